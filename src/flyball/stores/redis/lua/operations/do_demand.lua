-- Announce or drop a project's standing demand.
-- twin: stores/operations.py StoreOperations.demand
local stage, rest = match(ARGV[3] or '', '^(%a*) ?(.*)$')
local unready = desk.open()
if unready then return unready end
if stage == '' then
  local ttl, member = match(ARGV[2], '^([^\t]*)\t(.*)$')
  ttl = tonumber(ttl)
  if ttl > 0 then
    desk.project(match(member, '^([^\t]*)'))
    call('HSET', PREFIX .. 'demands', member, text(now + ttl))
  else
    call('HDEL', PREFIX .. 'demands', member)
  end
  desk.inform('refresh')
  return desk.state('serve')
end
local unplanned = handout.hand_out(rest)
if unplanned then return desk.state('serve ' .. unplanned) end
return desk.done('told')
