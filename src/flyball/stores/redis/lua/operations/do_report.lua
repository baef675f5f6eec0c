-- The world said something: the plan hears it at once, or, if somebody else plans just now, from the inbox.
-- ARGV[2]: the lease whose call it answers (empty: none), when it was asked for, then the event as the planner reads it.
-- twin: stores/operations.py StoreOperations.report
if ARGV[3] == 'told' then
  desk.install(ARGV[4])
  desk.read()
  -- Whoever was faster may not have heard it yet.
  if pool.events > 0 then return desk.state('told') end
  return desk.done('told')
end
if ARGV[4] then desk.install(ARGV[4]) end
desk.read()
if not pool then return desk.state('') end
local id, asked_at, event = match(ARGV[2], '^([^\t]*)\t([^\t]*)\t(.*)$')
local line = ''
if id ~= '' then
  local claim = claims.of(tonumber(id), asked_at)
  -- One that was never sent measures nothing.
  if claim and claim.granted_at then line = call('HGET', PREFIX .. 'claims', id) end
end
desk.inform('signal\t' .. event .. '\t' .. line)
return desk.state('told')
