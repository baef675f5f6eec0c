-- The end that teaches nothing special: a plain pool (see fast_admit), no ask waits, no word was said about it.
-- twin: stores/operations.py StoreOperations._end_in
-- twin: stores/handoff.py note_end, plan_soon
-- twin: core/pool/model.py Meters.note_hold
do
  local call, match = redis.call, string.match
  local when, deadline = match(ARGV[1], '^([^\t]*)\t([^\t]*)')
  local id, oks, named_at = match(ARGV[2], '^(%d+)\tfinished\t(%d*)\t\t\t\t([^\t]*)\t$')
  local line = id and not ARGV[3] and call('HGET', KEYS[1] .. 'claims', id)
  -- project, slots, priority, asked_at, granted_at; no expiry, no marks, not ended before
  local project, slots, priority, asked_at, granted_at = match(line or '', '^([^\t]*)' .. string.rep('\t[^\t]*', 6)
    .. '\t([1-9]%d*)\t([^\t]*)' .. string.rep('\t[^\t]*', 3)
    .. '\t([^\t]*)\t([^\t]+)\t\t[^\t]*\t[^\t]*\t[^\t]*\t\t[^\t]*\t$')
  local named = project and (named_at == '' or tonumber(named_at) == tonumber(asked_at))
  local v = named and call('HMGET', KEYS[1] .. 'pool', 'valid_until', 'cap', 'ceiling', 'by_success', 'in_use',
    'low_in_use', 'hold_mean_s', 'bound_oks', 'use:' .. project, 'plain', 'waiting', 'events')
  if v and v[10] == '1' and v[11] == '0' and v[12] == '0' and v[9] then
    if when == '' then
      local time = call('TIME')
      when = time[1] .. '.' .. string.sub('00000' .. time[2], -6)
    end
    local now = tonumber(when)
    local valid_until, cap, in_use, hold_mean_s = tonumber(v[1]), tonumber(v[2]), tonumber(v[5]), tonumber(v[7])
    local used, rest = match(v[9], '^(%d+)(\t.*)$')
    local valid_for_s = valid_until - now
    if valid_for_s > 0 and valid_for_s <= 2 * FOREVER_S and (deadline == '' or now <= tonumber(deadline)) then
      local held_s, was_full = math.max(0, now - granted_at), in_use >= cap
      if was_full or held_s >= 1 or id % HOLD_SAMPLE == 0 then
        hold_mean_s = hold_mean_s + (held_s - hold_mean_s) * (hold_mean_s ~= 0 and HOLD_SMOOTHING or 1)
      end
      local bound_oks, soon = v[8], now + FOLD_EVERY_S
      if was_full then
        bound_oks = bound_oks + (oks ~= '' and oks or 1)
        if v[4] == '1' and valid_until > soon and cap < tonumber(v[3]) then valid_until = soon end
      end
      local low = tonumber(priority) > 0 and v[6] or v[6] - slots
      call('HSET', KEYS[1] .. 'pool', 'in_use', in_use - slots, 'low_in_use', low,
        'use:' .. project, (used - slots) .. rest, 'hold_mean_s', string.format('%.17g', hold_mean_s),
        'bound_oks', bound_oks, 'valid_until', string.format('%.17g', valid_until))
      call('HDEL', KEYS[1] .. 'claims', id)
      call('ZREM', KEYS[1] .. 'held', project .. '\0' .. string.format('%016d', id))
      return 'ended'
    end
  end
end
