-- Show a run that waits out a limit: it holds nothing and is counted nowhere.
-- twin: stores/operations.py StoreOperations.pause
local unready = session.open()
if unready then return unready end
local unnumbered = session.ask_for_ids()
if unnumbered then return unnumbered end
local f = record.fields(ARGV[2])
local ask = {
  project = f[1], name = f[2], host = f[3], boot = f[4], pidns = f[5], pid = f[6], start = f[7], slots = 0,
  priority = tonumber(f[9]), model = f[10], mailbox = '', launcher_pid = f[12], cost_text = '',
  marks_text = '', tag = '', ended = '', why = f[15], level = 0, asked_at = now, granted_at = now,
  expires_at = now + tonumber(f[14]),
}
ask.id = claims.take_id()
claims.put(ask)
claims.enter_held(ask)
session.record_fact(ask, 'rests', ask.why)
return session.finish(text(ask.id))
