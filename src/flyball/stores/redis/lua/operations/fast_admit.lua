-- The grant that nothing stands in the way of: a pool that is open and fresh, no ask waits, nothing is spaced,
-- windowed, reserved or shared strictly. Most grants are this one, so it is written out before the functions
-- of the whole are made; what it leaves is judged by them. Both say the same: the traces see to that.
-- twin: stores/operations.py StoreOperations._admit
-- twin: stores/handoff.py grant_new, _grant, _after_grant, plan_soon
do
  local call, match = redis.call, string.match
  local when, deadline = match(ARGV[1], '^([^\t]*)\t([^\t]*)')
  local project, slots, priority, cost, tag, who =
    match(ARGV[2], '^1?\t([^\t]*)\t[^\t]*\t[^\t]*\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$')
  -- One that is not read goes the whole way.
  local v = project and not ARGV[3] and call('HMGET', KEYS[1] .. 'pool', 'valid_until', 'cap', 'ceiling', 'by_success',
    'in_use', 'low_in_use', 'next_id', 'use:' .. project, 'plain', 'waiting', 'events')
  -- plain: the plan says that there is nothing to compare but the cap (stores/fast_path.py).
  if v and v[9] == '1' and v[10] == '0' and v[11] == '0' and v[8] then
    if when == '' then
      local time = call('TIME')
      when = time[1] .. '.' .. string.sub('00000' .. time[2], -6)
    end
    local now = tonumber(when)
    local valid_until, cap, in_use, next_id = tonumber(v[1]), tonumber(v[2]), v[5] + slots, tonumber(v[7])
    local used, rest = match(v[8], '^(%d+)(\t%d+\t[^\t]*\t\t.*)$')
    local valid_for_s = valid_until - now
    if used and in_use <= cap and valid_for_s > 0 and valid_for_s <= 2 * FOREVER_S and next_id % ID_BLOCK ~= 0
      and (deadline == '' or now <= tonumber(deadline)) then
      local id = string.format('%d', next_id)
      local low = tonumber(priority) > 0 and v[6] or v[6] + slots
      local use = (used + slots) .. rest
      if in_use < cap then
        call('HSET', KEYS[1] .. 'pool', 'in_use', in_use, 'low_in_use', low, 'next_id', next_id + 1,
          'use:' .. project, use)
      else
        -- A cap that grows by success must not wait for the plan to get old.
        local soon = now + FOLD_EVERY_S
        local folds = v[4] == '1' and valid_until > soon and cap < tonumber(v[3])
        call('HSET', KEYS[1] .. 'pool', 'in_use', in_use, 'low_in_use', low, 'next_id', next_id + 1,
          'use:' .. project, use, 'bound_at', when, 'valid_until', folds and string.format('%.17g', soon) or v[1])
      end
      call('HSET', KEYS[1] .. 'claims', id,
        who .. '\t' .. when .. '\t' .. when .. '\t\t\t' .. in_use .. '\t' .. cost .. '\t\t' .. tag .. '\t')
      call('ZADD', KEYS[1] .. 'held', 0, project .. '\0' .. string.format('%016d', next_id))
      return 'granted\t' .. id .. '\t' .. in_use .. '\t' .. cap .. '\t' .. when
    end
  end
end
