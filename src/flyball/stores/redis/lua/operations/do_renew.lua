-- What a renewal freed goes to those in line.
-- twin: stores/shares.py renew
local unplanned = handout.hand_out(rest)
if unplanned then return desk.state('serve ' .. unplanned, reply) end
return desk.done(reply)
