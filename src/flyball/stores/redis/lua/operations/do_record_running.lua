-- Record work that already runs; it may exceed the cap. Recorded twice, it counts once.
-- twin: stores/operations.py StoreOperations.record_running
local unready = session.open()
if unready then return unready end
local unnumbered = session.ask_for_ids()
if unnumbered then return unnumbered end
local f = record.fields(ARGV[2])
local ask = {
  project = f[1], name = f[2], host = f[3], boot = f[4], pidns = f[5], pid = f[6], start = f[7],
  slots = tonumber(f[8]), priority = tonumber(f[9]), model = f[10], mailbox = f[11], launcher_pid = f[12],
  cost_text = f[13], marks_text = '', tag = '', ended = '', why = '', asked_at = now, granted_at = now,
}
session.project(ask.project)
local mine = call('ZRANGEBYLEX', PREFIX .. 'held', '[' .. ask.project .. '\0', '(' .. ask.project .. '\0\255')
for _, member in ipairs(mine) do
  local known = claims.find(tonumber(match(member, '(%d+)$')))
  if known.name == ask.name and known.host == ask.host and known.boot == ask.boot and known.pidns == ask.pidns
    and known.pid == ask.pid and known.start == ask.start then
    return session.finish(text(known.id))
  end
end
ask.id, ask.level = claims.take_id(), pool.in_use + ask.slots
claims.put(ask)
claims.enter_held(ask)
session.record_fact(ask, 'held', 'recorded as already running')
return session.finish(text(ask.id))
