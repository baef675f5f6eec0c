-- Rows of share leases, and the life of the server they are in. Mirrors ShareLease in core/share_lease/renewal.py.
--
-- A row is one line: node, incarnation, seq, slots, owed, in_flight, wants, weight, draining, since, expires_at,
-- successes, throttles, overloads, peak, estimate, mailbox. Targets are kept apart: the plan sets them all at
-- once, and never anything that a renewal has moved meanwhile. Who is short of what was promised is indexed, so
-- that a renewal which frees something need not read all of them.

-- twin: stores/redis/records.py _parse_share
function shares.find(name)
  local line = call('HGET', PREFIX .. 'shares', name)
  if not line then return nil end
  local s = {name = name}
  s.seq, s.slots, s.owed, s.wants, s.draining, s.since, s.expires_at, s.successes, s.throttles, s.overloads, s.peak,
    s.mailbox = match(line, '^[^\t]*\t[^\t]*\t(%d+)\t(%d+)\t(%d+)\t%d+\t(%d+)\t[^\t]*\t(%d)\t([^\t]*)\t([^\t]*)\t'
      .. '(%d+)\t(%d+)\t(%d+)\t(%d+)\t[^\t]*\t(.*)$')
  s.seq, s.slots, s.owed, s.wants = tonumber(s.seq), tonumber(s.slots), tonumber(s.owed), tonumber(s.wants)
  s.since, s.expires_at, s.peak = tonumber(s.since), tonumber(s.expires_at), tonumber(s.peak)
  s.draining, s.target = s.draining == '1', tonumber(call('HGET', PREFIX .. 'targets', name))
  return s
end

-- twin: core/share_lease/renewal.py ShareLease.active
function shares.is_active(s) return s.wants > 0 and not s.draining end

-- What of the cap it keeps from others.
-- twin: core/share_lease/renewal.py ShareLease.busy
function shares.busy(s) return (s.wants > 0 or s.draining) and s.peak or s.slots end

-- twin: core/share_lease/renewal.py ShareLease.short
function shares.is_short(s) return shares.is_active(s) and s.wants > s.slots and s.target > s.slots end

-- Tell the holder of a share lease to renew it soon.
-- no twin: a line that script_runner.py makes a notice of, and a word on a channel
function shares.notice(mailbox)
  session.add_effect('n\t' .. mailbox)
  session.publish(mailbox, '')
end

-- -- the life of the server -------------------------------------------------------------------------------

-- Another one where the server may have lost what it knew: it was started or promoted.
-- no twin: only a server has an identity that changes when it may have forgotten
function shares.epoch()
  if session.epoch ~= '' then return session.epoch end
  local server, replication = call('INFO', 'server'), call('INFO', 'replication')
  return (match(server, 'run_id:(%w+)') or '') .. ' ' .. (match(replication, 'master_replid:(%w+)') or '')
end

-- Since when everything is remembered. One key for all pools: a cluster has no place for it, so there no pool
-- knows but the pool itself.
-- twin: stores/shares.py _current_life
function shares.life_since(epoch)
  -- Redis and Valkey name their mode differently, and this alike.
  if string.find(call('INFO', 'cluster'), 'cluster_enabled:1', 1, true) then return now end
  local key = match(PREFIX, '^(.*){[^{]*}:$') .. 'life'
  local since, of = match(call('GET', key) or '', '^([^\t]*)\t(.*)$')
  if of == epoch then return tonumber(since) end
  call('SET', key, text(now) .. '\t' .. epoch)
  return now
end

-- Does another process already work out which lease should get how much? What many rows go into takes a while, and renewals
-- come by the hundred: they go on with what there is.
-- no twin: only here is a plan made outside the step that asked for it
function shares.being_divided()
  local till = call('HGET', PREFIX .. 'pool', 'pot:planning')
  return till and now < tonumber(till) and now > tonumber(till) - 2 * PLANNING_S
end

-- -- what a plan changes ----------------------------------------------------------------------------------

-- Did another process divide the budget meanwhile, or a lease renew that was to be evicted? Then once more.
-- no twin: only here is a plan made outside the step that asked for it
function shares.outdated(plan)
  if plan.divided == '' then return false end
  if plan.divided ~= (call('HGET', PREFIX .. 'pool', 'pot:version') or '0') then return true end
  for _, name in ipairs(plan.gone) do
    local s = shares.find(name)
    if s and s.expires_at > now then return true end
  end
  return false
end

-- no twin: adds to one field of the pool
function shares.add(field, number)
  if number ~= 0 then call('HINCRBY', PREFIX .. 'pool', field, number) end
end

-- twin: stores/memory_rows.py MemoryRows.drop_share, MemoryRows._count_share
-- twin: stores/shares.py _evict_lease
function shares.drop(name)
  local s = shares.find(name)
  if not s then return end
  call('HDEL', PREFIX .. 'shares', name)
  call('HDEL', PREFIX .. 'targets', name)
  call('ZREM', PREFIX .. 'short', name)
  shares.add('in_use', -s.slots)
  shares.add('low_in_use', -s.slots)
  shares.add('pot:held', -s.slots)
  shares.add('pot:nodes', s.draining and 0 or -1)
  shares.add('pot:busy', -shares.busy(s))
  shares.add('pot:active', shares.is_active(s) and -1 or 0)
end

-- Many at once, but not more than Lua can pass on.
-- no twin: Lua passes on no more than so many arguments
function shares.in_parts(command, key, list)
  for i = 1, #list, 1000 do call(command, PREFIX .. key, unpack(list, i, min(i + 999, #list))) end
end

-- Rows go only by this, and the plan begins where the last one ended: those it has targets for are there.
-- twin: stores/redis/pool_image.py PoolImage._division
function shares.divide(plan)
  if plan.divided == '' then return end
  session.divided = true
  call('HSET', PREFIX .. 'pool', 'pot:version', plan.divided + 1, 'pot:planning', 0)
  shares.in_parts('HSET', 'targets', plan.targets)
  shares.in_parts('ZREM', 'short', plan.served)
  shares.in_parts('ZADD', 'short', plan.short)
  for _, name in ipairs(plan.gone) do shares.drop(name) end
  for _, mailbox in ipairs(plan.notices) do shares.notice(mailbox) end
end

-- Who joined while a plan was made may be gone for good before the time which that plan names.
-- twin: stores/pool_session.py PoolSession.look_by
function shares.look_in_time()
  local v = call('HMGET', PREFIX .. 'pool', 'valid_until', 'pot:until')
  if tonumber(v[2]) < tonumber(v[1]) then call('HSET', PREFIX .. 'pool', 'valid_until', v[2]) end
end

-- What a plan of who should get how much is made from; nothing where none is due. ``surely``: it will be made.
-- twin: stores/redis/script_runner.py parse_state
function shares.state(asked, surely)
  local v = pool and call('HMGET', PREFIX .. 'pool', 'pot:until', 'pot:epoch') or {}
  if not v[1] then return {}, {}, '' end
  local due = asked or now >= tonumber(v[1])
  if not due and pool.trial_id ~= TRIAL_ID then return {}, {}, '' end
  local epoch = shares.epoch()
  if epoch ~= v[2] then shares.life_since(epoch) end
  if due and surely then call('HSET', PREFIX .. 'pool', 'pot:planning', text(now + PLANNING_S)) end
  return call('HGETALL', PREFIX .. 'shares'), call('HGETALL', PREFIX .. 'targets'), epoch
end
