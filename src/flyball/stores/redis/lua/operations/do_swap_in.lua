-- Swap in what a person set and hand out what that frees. 'moved': another process planned meanwhile, read it again.
-- twin: stores/admin_operations.py AdminOperations._set_pool
if ARGV[2] == 'state' then
  session.read()
  return session.ask_for_plan('', '', true)
end
local rest = match(ARGV[3], '^%a* ?(.*)$')
if ARGV[3] == '' then
  session.install_plan(ARGV[4])
  if #session.effects == 0 then return 'moved' end
  session.read()
  if session.is_stale() then return session.ask_for_plan('serve') end
else
  local unready = session.open()
  if unready then return unready end
end
local unplanned = handoff.hand_off(rest)
if unplanned then return session.ask_for_plan('serve ' .. unplanned) end
return session.finish('served')
