-- A block of claim ids for one pool: no other pool gets these, and the block says whose a claim is.
-- no twin: only Redis keeps apart which pool an id belongs to
redis.call('HSETNX', KEYS[1], 'layout', LAYOUT)
local number = redis.call('HINCRBY', KEYS[1], 'next', 1) - 1
redis.call('HSET', KEYS[1], string.format('%d', number), ARGV[1])
return number
