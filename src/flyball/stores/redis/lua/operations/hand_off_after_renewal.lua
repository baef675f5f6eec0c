-- What a renewal freed goes to those in line.
-- twin: stores/shares.py renew
local unplanned = handoff.hand_off(rest)
if unplanned then return session.ask_for_plan('serve ' .. unplanned, reply) end
return session.finish(reply)
