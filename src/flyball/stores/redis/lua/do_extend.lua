-- An ask or lease with a time to live goes on for so long from now. Mirrors Verbs.extend.
local id, ttl_s = match(ARGV[2], '^([^\t]*)\t(.*)$')
local claim = claims.of(tonumber(id))
if not claim or not claim.expires_at or claim.expires_at <= now then return {'0'} end
keys.expire(claim, now + tonumber(ttl_s))
return {'1'}
