-- The claims that began with one of these tags: whose first answer was never heard.
-- no twin: only the answer of a server can be lost
local tags, found, claims = {}, {}, redis.call('HGETALL', KEYS[1] .. 'claims')
for _, tag in ipairs(ARGV) do tags[tag] = true end
for i = 1, #claims, 2 do
  local tag = string.match(claims[i + 1], '^' .. string.rep('[^\t]*\t', 19) .. '([^\t]*)')
  if tags[tag] then
    found[#found + 1] = claims[i]
    found[#found + 1] = tag
  end
end
return found
