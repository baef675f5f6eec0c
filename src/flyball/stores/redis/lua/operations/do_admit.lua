-- An ask of a process of some host.
-- twin: stores/operations.py StoreOperations._admit_in_step
local unready, said = admission.admit_or_park(ARGV[2])
return unready or session.finish(said)
