-- Everything one pool knows, for looking.
local PREFIX = KEYS[1]
local time = redis.call('TIME')
return {
  time, redis.call('HGETALL', PREFIX .. 'pool'), redis.call('LRANGE', PREFIX .. 'inbox', 0, -1),
  redis.call('HGETALL', PREFIX .. 'demands'),
  redis.call('HGETALL', PREFIX .. 'claims'), redis.call('HGETALL', PREFIX .. 'hosts'),
}
