-- Does this ask fit the limits? Mirrors the first half of core/pool/admission.py function by function.
local admit = {}

-- no twin: repr() of a text
function admit.quoted(name)
  local plain = string.gsub(name, '\\', '\\\\')
  if string.find(plain, "'", 1, true) then
    if not string.find(plain, '"', 1, true) then return '"' .. plain .. '"' end
    plain = string.gsub(plain, "'", "\\'")
  end
  return "'" .. plain .. "'"
end

-- twin: core/pool/admission.py too_large
function admit.too_large(ask, use)
  local usable = ask.priority > 0 and pool.ceiling or pool.ceiling - pool.reserve
  if ask.slots > usable then
    return format('asks for %d slots, the pool can never grant more than %d', ask.slots, usable)
  end
  if use.maximum and ask.slots > use.maximum then
    return format('asks for %d slots, %s may hold at most %d', ask.slots, admit.quoted(ask.project), use.maximum)
  end
end

-- twin: core/pool/admission.py _fits_reserve
function admit.fits_reserve(ask, reserve)
  return ask.priority > 0 and pool.in_use - pool.low_in_use + ask.slots <= reserve
end

-- twin: core/pool/admission.py _fits_share
function admit.fits_share(ask, use)
  if use.in_use + ask.slots <= (use.share or 0) then return true end
  desk.rest()
  return ask.slots > 1 and use.in_use == 0 and now - ask.asked_at >= pool.ageing_s
end

-- twin: core/pool/admission.py _lacks
function admit.lacks(ask, left, beside)
  return ask.slots > 1 and format('asks for %d, %d free%s', ask.slots, max(0, left), beside) or nil
end

-- twin: core/pool/admission.py _judge_room
function admit.judge_room(ask, use, trial)
  local cap = trial and pool.ceiling or pool.cap
  if pool.in_use + ask.slots > cap then
    return {reason = 'cap', detail = admit.lacks(ask, cap - pool.in_use, '')}
  end
  -- A reserve never takes the last slot: at a cap of 1 ordinary work would stop for good.
  local reserve = min(pool.reserve, cap - 1)
  if ask.priority <= 0 and reserve ~= 0 and pool.low_in_use + ask.slots > cap - reserve then
    local left = cap - reserve - pool.low_in_use
    return {reason = 'reserve', detail = admit.lacks(ask, left, ' beside the reserve')}
  end
  if use.maximum and use.in_use + ask.slots > use.maximum then
    return {reason = 'maximum', detail = format('%s is at its maximum of %d', admit.quoted(use.name), use.maximum)}
  end
  local shared = pool.share == 'strict' and not trial and not admit.fits_reserve(ask, reserve)
  if shared and not admit.fits_share(ask, use) then
    local detail = format('%s uses %d of its fair share %d', admit.quoted(use.name), use.in_use, use.share or 0)
    return {reason = 'share', till = pool.valid_until, detail = detail}
  end
end

-- twin: core/pool/admission.py _judge_windows
-- twin: core/pool/rate_window.py room_at
function admit.judge_windows(ask)
  local cost = claims.cost(ask)
  local latest, last = now, nil
  for _, w in ipairs(pool.windows) do
    local at = window.room_at(w, window.cost_in(w, cost), now)
    if at > latest then latest, last = at, w end
  end
  if not last then return nil end
  local detail = format('%s window %s: %.0f of %.0f left, %.0f needed', last.source, last.name,
    max(0, window.level_at(last, now)), last.limit, window.cost_in(last, cost))
  return {reason = 'window', till = latest, detail = detail, window = last.name}
end

-- nil if the ask may start now, else the first thing in its way.
-- twin: core/pool/admission.py judge
function admit.judge(ask, use)
  if pool.closed_until and now < pool.closed_until then
    return {reason = pool.phase == 'open' and 'breaker' or 'retry-after', till = pool.closed_until}
  end
  local trial = pool.phase == 'trial'
  if trial and pool.trial_id then return {reason = 'trial', till = pool.valid_until} end
  if not trial and now < pool.next_grant_at then return {reason = 'spacing', till = pool.next_grant_at} end
  return admit.judge_room(ask, use, trial) or (pool.windows and admit.judge_windows(ask)) or nil
end
