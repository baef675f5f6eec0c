-- This host is there and looks after its leases. '1': the caller checks their holders now, for all
-- processes of the host; one check in a while is enough. And what time it is.
-- ARGV[2]: how often they are checked
-- no twin: only stores of many hosts keep it; PostgreSQL does in one statement, BEAT in postgres/queries.py
local key, mine = PREFIX .. 'hosts', call('HGET', PREFIX .. 'hosts', session.here)
local looked_at = mine and tonumber(match(mine, '\t(.*)$'))
local due = not looked_at or now - looked_at >= tonumber(ARGV[2]) or looked_at > now
call('HSET', key, session.here, text(now) .. '\t' .. text(due and now or looked_at))
if due and call('HLEN', key) > HOSTS_KEPT then
  local all = call('HGETALL', key)
  for i = 1, #all, 2 do
    if now - tonumber(match(all[i + 1], '^[^\t]*')) > LEASE_BACKSTOP_S then call('HDEL', key, all[i]) end
  end
end
return (due and '1' or '0') .. '\t' .. text(now)
