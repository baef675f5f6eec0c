-- Everything one pool knows, for looking.
-- twin: stores/redis/pool_image.py PoolImage.load
return {
  text(now), call('HGETALL', PREFIX .. 'pool'), call('LRANGE', PREFIX .. 'inbox', 0, -1),
  call('HGETALL', PREFIX .. 'demands'), call('HGETALL', PREFIX .. 'claims'), call('HGETALL', PREFIX .. 'hosts'),
  call('HGETALL', PREFIX .. 'shares'), call('HGETALL', PREFIX .. 'targets'), shares.epoch(),
}
