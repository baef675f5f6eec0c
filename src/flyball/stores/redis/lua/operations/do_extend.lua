-- An ask or lease with a time to live goes on for so long from now.
-- twin: stores/operations.py StoreOperations.extend
local id, asked_at, ttl_s = match(ARGV[2], '^([^\t]*)\t([^\t]*)\t(.*)$')
local claim = claims.find(tonumber(id), asked_at)
if not claim or not claim.expires_at or claim.expires_at <= now then return '0' end
remote.expire(claim, now + tonumber(ttl_s))
return '1'
