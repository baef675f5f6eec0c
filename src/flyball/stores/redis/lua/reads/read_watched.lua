-- The leases of a pool, the ask that watches them, and who demands: those whose death would free something.
-- twin: stores/memory_rows.py MemoryRows.watched_claims
-- twin: stores/operations.py StoreOperations.pool_census
local PREFIX = KEYS[1]
local CLAIMS = PREFIX .. 'claims'
local ids, found = {}, {}
for _, member in ipairs(redis.call('ZRANGE', PREFIX .. 'held', 0, -1)) do
  ids[#ids + 1] = string.format('%d', string.match(member, '(%d+)$'))
end
for _, id in ipairs(redis.call('ZRANGE', PREFIX .. 'resting', 0, -1)) do ids[#ids + 1] = id end
local watcher = redis.call('HGET', PREFIX .. 'pool', 'watcher_id')
if watcher then ids[#ids + 1] = watcher end
for _, id in ipairs(ids) do
  local line = redis.call('HGET', CLAIMS, id)
  if line and found[id] == nil then
    found[id] = true
    found[#found + 1] = id
    found[#found + 1] = line
  end
end
local listed = {}
for i, item in ipairs(found) do listed[i] = item end
return {
  'claims', listed, 'demands', redis.call('HGETALL', PREFIX .. 'demands'), 'hosts', redis.call('HGETALL', PREFIX .. 'hosts'),
}
