-- Everything one pool knows, for reads.
-- twin: stores/redis/script_runner.py parse_state
return {
  'kind', 'pool', 'now', text(now), 'pool', call('HGETALL', PREFIX .. 'pool'),
  'inbox', call('LRANGE', PREFIX .. 'inbox', 0, -1), 'demands', call('HGETALL', PREFIX .. 'demands'),
  'claims', call('HGETALL', PREFIX .. 'claims'), 'hosts', call('HGETALL', PREFIX .. 'hosts'),
  'shares', call('HGETALL', PREFIX .. 'shares'), 'targets', call('HGETALL', PREFIX .. 'targets'),
  'epoch', shares.epoch(),
}
