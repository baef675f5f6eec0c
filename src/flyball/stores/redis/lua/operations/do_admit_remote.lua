-- A remote ask. Mirrors StoreOperations.admit for an ask with a key or a time to live.
-- ARGV[2]: time to live, key, fingerprint, and what do_admit is given
-- twin: stores/operations.py StoreOperations._admit_in_step, find_replay
local ttl_s, key, fingerprint, argument = match(ARGV[2], '^([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$')
if key ~= '' then
  -- A pool that is stale, or new, is planned first, as for any ask.
  local unready = session.open()
  if unready then return unready end
  local known = remote.find_receipt(key)
  if known then
    if known[1] ~= fingerprint then return session.finish('key used') end
    if known[3] == '0' then remote.wait_at(tonumber(known[2]), match(argument, '([^\t]*)\t[^\t]*$'), ttl_s) end
    return session.finish(table.concat({'replay', known[2], known[3], known[4], known[5], known[7] or '0'}, '\t'))
  end
end
local unready, said, claim = admission.admit_or_park(argument)
if unready then return unready end
if claim then
  if ttl_s ~= '' then remote.expire(claim, now + tonumber(ttl_s)) end
  if key ~= '' then remote.write_receipt(claim, key, fingerprint) end
end
return session.finish(said)
