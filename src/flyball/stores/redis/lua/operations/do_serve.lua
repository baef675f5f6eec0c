-- Swap in what a person set and hand out what that frees. 'moved': somebody planned meanwhile, look again.
-- twin: stores/admin_operations.py AdminOperations._set_pool
if ARGV[2] == 'state' then
  desk.read()
  return desk.state('', '', true)
end
local rest = match(ARGV[3], '^%a* ?(.*)$')
if ARGV[3] == '' then
  desk.install(ARGV[4])
  if #desk.said == 0 then return 'moved' end
  desk.read()
  if desk.stale() then return desk.state('serve') end
else
  local unready = desk.open()
  if unready then return unready end
end
local unplanned = handout.hand_out(rest)
if unplanned then return desk.state('serve ' .. unplanned) end
return desk.done('served')
