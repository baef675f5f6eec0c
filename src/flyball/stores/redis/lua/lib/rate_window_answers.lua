-- What the end of a call teaches about the windows. Mirrors the second half of core/pool/rate_window.py.

-- twin: core/pool/rate_window.py Window.owes
function window.owes(w, sent_at, mark)
  return mark[w.name] ~= nil and sent_at > w.seen_sent_at
end

-- twin: core/pool/rate_window.py reconcile
function window.settle(windows, reserved, actual, sent_at, mark, now)
  for _, w in ipairs(windows) do
    if actual[w.name] and window.owes(w, sent_at, mark) then
      window.taken(w, actual[w.name] - window.cost_in(w, reserved), now)
    end
  end
end

-- twin: core/pool/rate_window.py refund
function window.refund(windows, reserved, sent_at, mark, now)
  for _, w in ipairs(windows) do
    if window.owes(w, sent_at, mark) then window.taken(w, -window.cost_in(w, reserved), now) end
  end
end

-- As the provider says; from the time until it is full again; else a minute's worth.
-- twin: core/pool/rate_window.py _refill_per_s
function window.refill_of(w, bucket, limit)
  local told_s = bucket.window_s
  if told_s and FULL_AGAIN_LEAST_S <= told_s and told_s <= FULL_AGAIN_MOST_S then return limit / told_s end
  local usual = w and w.limit == limit and w.refill_per_s or limit / MINUTE_S
  local missing, reset_s = limit - bucket.remaining, bucket.reset_s
  if not reset_s or missing < 0.05 * limit or reset_s < FULL_AGAIN_LEAST_S or reset_s > FULL_AGAIN_MOST_S then
    return usual
  end
  local told = missing / reset_s
  return w and usual + (told - usual) * SMOOTHING or told
end

-- twin: core/pool/rate_window.py _others_per_s
function window.others_of(w, left, sent_at, mark, refill)
  if not w or w.seen_sent_at <= NEVER or not mark then return 0 end
  local span_s = sent_at - w.seen_sent_at
  if span_s <= 0 then return w.others_per_s end
  local expected = min(w.limit, w.seen_level + refill * span_s) - (mark - w.seen_spent)
  local drawn_per_s = max(0, expected - left) / span_s
  return w.others_per_s + (drawn_per_s - w.others_per_s) * min(1, span_s / OTHERS_S)
end

-- twin: core/pool/rate_window.py _mirror
function window.mirrored(w, bucket, sent_at, mark, now)
  local limit = bucket.limit ~= 0 and bucket.limit or (w and w.limit)
  if not limit or limit <= 0 or (w and sent_at < w.seen_sent_at) then return nil end
  local refill = window.refill_of(w, bucket, limit)
  local spent = w and w.spent or 0
  local sent_since = max(0, spent - (mark or spent))
  local left = bucket.remaining
  if left <= 0 and bucket.reset_s then left = min(left, limit - bucket.reset_s * refill) end
  local others = window.others_of(w, left, sent_at, mark, refill)
  local since_s = max(0, now - sent_at)
  return {
    name = bucket.name, limit = limit, refill_per_s = refill,
    level = min(limit, left - sent_since + max(refill * LEAST_NET, refill - others) * since_s),
    at = now, source = 'reported', spent = spent, seen_sent_at = sent_at, seen_level = left,
    seen_spent = mark or spent, others_per_s = others,
  }
end

-- twin: stores/redis/records.py buckets_line
function window.buckets(line)
  local found = {}
  for one in string.gmatch(line, '[^\30]+') do
    local name, limit, remaining, reset_s, window_s =
      match(one, '^([^\31]*)\31([^\31]*)\31([^\31]*)\31([^\31]*)\31([^\31]*)$')
    found[#found + 1] = {
      name = name, limit = tonumber(limit), remaining = tonumber(remaining),
      reset_s = tonumber(reset_s), window_s = tonumber(window_s),
    }
  end
  return found
end

-- What a person declared stays; what the provider reports is kept in the order in which it was first heard.
-- twin: core/pool/rate_window.py learn
function window.learn(windows, buckets, sent_at, mark, now)
  local fixed, place, others, reported = {}, {}, {}, {}
  for _, w in ipairs(windows) do
    if w.source == 'declared' then fixed[w.name] = true end
    if w.source == 'reported' then
      reported[#reported + 1] = w
      place[w.name] = #reported
    else
      others[#others + 1] = w
    end
  end
  for _, bucket in ipairs(buckets) do
    local known = place[bucket.name]
    local found = window.mirrored(known and reported[known], bucket, sent_at, mark[bucket.name], now)
    if found and not fixed[bucket.name] then
      place[bucket.name] = known or #reported + 1
      reported[place[bucket.name]] = found
    end
  end
  for _, w in ipairs(reported) do others[#others + 1] = w end
  return others
end
