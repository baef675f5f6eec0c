-- Announce or drop a project's standing demand.
-- twin: stores/operations.py StoreOperations.demand
local stage, rest = match(ARGV[3] or '', '^(%a*) ?(.*)$')
local unready = session.open()
if unready then return unready end
if stage == '' then
  local ttl, member = match(ARGV[2], '^([^\t]*)\t(.*)$')
  ttl = tonumber(ttl)
  if ttl > 0 then
    session.project(match(member, '^([^\t]*)'))
    call('HSET', PREFIX .. 'demands', member, text(now + ttl))
  else
    call('HDEL', PREFIX .. 'demands', member)
  end
  session.add_to_inbox('refresh')
  return session.ask_for_plan('serve')
end
local unplanned = handoff.hand_off(rest)
if unplanned then return session.ask_for_plan('serve ' .. unplanned) end
return session.finish('told')
