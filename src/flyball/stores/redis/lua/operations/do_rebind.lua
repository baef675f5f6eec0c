-- Another process is now the one whose life the lease follows.
-- twin: stores/operations.py StoreOperations.rebind
local f = record.fields(ARGV[2])
local claim = claims.find(tonumber(f[1]), f[8])
if not (claim and claim.granted_at) then return '0' end
claim.host, claim.boot, claim.pidns, claim.pid, claim.start, claim.launcher_pid = f[2], f[3], f[4], f[5], f[6], f[7]
claims.put(claim)
return '1'
