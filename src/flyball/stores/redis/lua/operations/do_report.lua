-- The world said something: the plan folds it at once, or, if another process plans just now, from the inbox.
-- ARGV[2]: the lease whose call it verdicts (empty: none), when it was asked for, then the event as the planner reads it.
-- twin: stores/operations.py StoreOperations.report
if ARGV[3] == 'told' then
  session.install_plan(ARGV[4])
  session.read()
  -- A plan that was faster may not have folded it yet.
  if pool.events > 0 then return session.ask_for_plan('told') end
  return session.finish('told')
end
if ARGV[4] then session.install_plan(ARGV[4]) end
session.read()
if not pool then return session.ask_for_plan('') end
local id, asked_at, event = match(ARGV[2], '^([^\t]*)\t([^\t]*)\t(.*)$')
local line = ''
if id ~= '' then
  local claim = claims.find(tonumber(id), asked_at)
  -- One that was never sent measures nothing.
  if claim and claim.granted_at then line = call('HGET', PREFIX .. 'claims', id) end
end
session.add_to_inbox('signal\t' .. event .. '\t' .. line)
return session.ask_for_plan('told')
