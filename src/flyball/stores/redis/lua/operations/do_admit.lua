-- An ask of a process of some host.
-- twin: stores/operations.py StoreOperations._admit_in_step
local unready, said = admit.run(ARGV[2])
return unready or desk.done(said)
