-- Values as text and back. Every row is one line of fields between tabs; names hold no control characters.
--
-- Functions live in a few tables, named after the modules they mirror: a script makes its functions anew on
-- every call, and one that closes over a hundred local functions pays for each of them.
local call, format, match, max, min = redis.call, string.format, string.match, math.max, math.min
local record = {}

-- Exact: seventeen digits bring a double back as it was.
-- twin: stores/redis/records.py dump_number
local function text(number)
  if number == nil then return '' end
  if number % 1 == 0 and number < 1e15 and number > -1e15 then return format('%d', number) end
  if number == math.huge or number == -math.huge then return number > 0 and '1e999' or '-1e999' end
  return format('%.17g', number)
end

-- no twin: str.split at tabs
function record.fields(line)
  local found, n = {}, 0
  for field in string.gmatch(line .. '\t', '([^\t]*)\t') do
    n = n + 1
    found[n] = field
  end
  return found
end

-- {tokens = 400} as name, amount, name, amount between unit separators.
-- twin: stores/redis/records.py parse_amounts
function record.amounts(line)
  local found = {}
  for name, amount in string.gmatch(line, '([^\31]+)\31([^\31]+)') do found[name] = tonumber(amount) end
  return found
end

-- twin: stores/redis/records.py amounts_line
function record.amounts_text(found)
  local parts = {}
  for name, amount in pairs(found) do parts[#parts + 1] = name .. '\31' .. text(amount) end
  return table.concat(parts, '\31')
end
