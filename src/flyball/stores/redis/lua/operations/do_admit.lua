-- An ask of a process of some host.
local unready, said = admit.run(ARGV[2])
return unready or desk.done(said)
