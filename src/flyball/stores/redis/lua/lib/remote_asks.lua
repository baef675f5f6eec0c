-- Remote asks: under a key, and with a time to live. Mirrors stores/operations.py.
local remote = {}

-- The oldest claim that has outlived its time; nil if there is none.
-- twin: stores/operations.py take_back_expired
-- twin: stores/memory_rows.py MemoryRows.expired_claims
function remote.first_expired()
  local oldest
  for _, id in ipairs(call('ZRANGEBYSCORE', PREFIX .. 'expiring', '-inf', text(now))) do
    oldest = min(oldest or math.huge, tonumber(id))
  end
  return oldest and claims.find(oldest)
end

-- twin: stores/operations.py take_back_expired
function remote.record_expiry(claim)
  local what = claim.granted_at and 'slot taken back' or 'ask dropped'
  session.record_fact(claim, 'reclaimed', what .. ': it was not extended in time')
end

-- twin: stores/memory_rows.py MemoryRows.expire
function remote.expire(claim, at)
  claim.expires_at = at
  claims.put(claim)
  call('ZADD', PREFIX .. 'expiring', text(at), text(claim.id))
end

-- What was said to an ask under the same key: fingerprint, claim, granted, in use, cap, until, when it was asked.
-- twin: stores/operations.py find_replay
function remote.find_receipt(key)
  local line = call('HGET', PREFIX .. 'receipts', key)
  local found = line and record.fields(line)
  return found and tonumber(found[6]) > now and found or nil
end

-- An ask in line is woken at the mailbox of the request that repeats it, and has its time anew.
-- twin: stores/operations.py _wait_at
function remote.wait_at(id, mailbox, ttl_s)
  local claim = mailbox ~= '' and claims.find(id)
  if not claim or claim.granted_at then return end
  if claim.mailbox ~= mailbox then
    -- A request that still waits at the old one has to look by itself from now on.
    claims.wake(claim)
    claim.mailbox = mailbox
    claims.put(claim)
  end
  if ttl_s ~= '' then remote.expire(claim, now + tonumber(ttl_s)) end
end

-- twin: stores/operations.py remember_reply
-- twin: stores/memory_rows.py MemoryRows.put_receipt
function remote.write_receipt(claim, key, fingerprint)
  for _, old in ipairs(call('ZRANGEBYSCORE', PREFIX .. 'receipts-until', '-inf', text(now), 'LIMIT', 0, 8)) do
    remote.forget_receipt(old)
  end
  local id, until_ = text(claim.id), now + KEY_TTL_S
  call('HSET', PREFIX .. 'receipts', key, table.concat({
    fingerprint, id, claim.granted_at and '1' or '0', text(pool.in_use), text(pool.cap), text(until_),
    text(claim.asked_at),
  }, '\t'))
  call('ZADD', PREFIX .. 'receipts-until', text(until_), key)
  call('HSET', PREFIX .. 'receipt-of', id, key)
end

-- twin: stores/memory_rows.py MemoryRows.drop_receipt
function remote.forget_receipt(key)
  local line = call('HGET', PREFIX .. 'receipts', key)
  if line then call('HDEL', PREFIX .. 'receipt-of', record.fields(line)[2]) end
  call('HDEL', PREFIX .. 'receipts', key)
  call('ZREM', PREFIX .. 'receipts-until', key)
end

-- It was never served: its client may ask again under the same key.
-- twin: stores/memory_rows.py MemoryRows.drop_receipt
function remote.drop_receipt(claim)
  local key = call('HGET', PREFIX .. 'receipt-of', text(claim.id))
  if key then remote.forget_receipt(key) end
end
