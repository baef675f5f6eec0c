-- Does this ask fit the limits, and which of the waiting is next? Mirrors core/pool/admission.py function by function.
local admission = {}

-- no twin: repr() of a text
function admission.quoted(name)
  local plain = string.gsub(name, '\\', '\\\\')
  if string.find(plain, "'", 1, true) then
    if not string.find(plain, '"', 1, true) then return '"' .. plain .. '"' end
    plain = string.gsub(plain, "'", "\\'")
  end
  return "'" .. plain .. "'"
end

-- twin: core/pool/admission.py too_large
function admission.too_large(ask, use)
  local usable = ask.priority > 0 and pool.ceiling or pool.ceiling - pool.reserve
  if ask.slots > usable then
    return format('asks for %d slots, the pool can never grant more than %d', ask.slots, usable)
  end
  if use.maximum and ask.slots > use.maximum then
    return format('asks for %d slots, %s may hold at most %d', ask.slots, admission.quoted(ask.project), use.maximum)
  end
end

-- twin: core/pool/admission.py _fits_reserve
function admission.fits_reserve(ask, reserve)
  return ask.priority > 0 and pool.in_use - pool.low_in_use + ask.slots <= reserve
end

-- twin: core/pool/admission.py _fits_share
function admission.fits_share(ask, use)
  if use.in_use + ask.slots <= (use.share or 0) then return true end
  session.read_rest()
  return ask.slots > 1 and use.in_use == 0 and now - ask.asked_at >= pool.ageing_s
end

-- twin: core/pool/admission.py _shortfall
function admission.lacks(ask, left, beside)
  return ask.slots > 1 and format('asks for %d, %d free%s', ask.slots, max(0, left), beside) or nil
end

-- twin: core/pool/admission.py _judge_room
function admission.judge_room(ask, use, trial)
  local cap = trial and pool.ceiling or pool.cap
  if pool.in_use + ask.slots > cap then
    return {reason = 'cap', detail = admission.lacks(ask, cap - pool.in_use, '')}
  end
  -- A reserve never takes the last slot: at a cap of 1 ordinary work would stop for good.
  local reserve = min(pool.reserve, cap - 1)
  if ask.priority <= 0 and reserve ~= 0 and pool.low_in_use + ask.slots > cap - reserve then
    local left = cap - reserve - pool.low_in_use
    return {reason = 'reserve', detail = admission.lacks(ask, left, ' beside the reserve')}
  end
  if use.maximum and use.in_use + ask.slots > use.maximum then
    return {reason = 'maximum', detail = format('%s is at its maximum of %d', admission.quoted(use.name), use.maximum)}
  end
  local shared = pool.share == 'strict' and not trial and not admission.fits_reserve(ask, reserve)
  if shared and not admission.fits_share(ask, use) then
    local detail = format('%s uses %d of its fair share %d', admission.quoted(use.name), use.in_use, use.share or 0)
    return {reason = 'share', till = pool.valid_until, detail = detail}
  end
end

-- twin: core/pool/admission.py _judge_windows
-- twin: core/pool/rate_window.py room_at
function admission.judge_windows(ask)
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
function admission.judge(ask, use)
  if pool.closed_until and now < pool.closed_until then
    if not pool.open_above then
      return {reason = pool.phase == 'open' and 'breaker' or 'retry-after', till = pool.closed_until}
    end
    if ask.priority <= pool.open_above then
      return {reason = 'window-used-up-soon', till = pool.closed_until}
    end
  end
  local trial = pool.phase == 'trial'
  if trial and pool.trial_id then return {reason = 'trial', till = pool.valid_until} end
  if not trial and now < pool.next_grant_at then return {reason = 'spacing', till = pool.next_grant_at} end
  return admission.judge_room(ask, use, trial) or (pool.windows and admission.judge_windows(ask)) or nil
end

-- As Python's float //: not always the floor of the quotient.
-- no twin: // of two floats
function admission.floordiv(a, b)
  local quotient = (a - math.fmod(a, b)) / b
  local whole = math.floor(quotient)
  if quotient - whole > 0.5 then whole = whole + 1 end
  return whole
end

-- twin: core/pool/fairness.py aged_priority
function admission.aged(priority, waited_s, top)
  return min(top, priority + admission.floordiv(max(0, waited_s), pool.ageing_s))
end

-- Ranks asks by aged priority, then the neediest project, then arrival.
-- twin: core/pool/fairness.py rank_asks
function admission.ranked(asks, uses, turn)
  local top = -math.huge
  for _, ask in ipairs(asks) do top = max(top, ask.priority) end
  local ranks = {}
  for i, ask in ipairs(asks) do
    local use = uses[ask.project]
    ranks[i] = {
      risen = admission.aged(ask.priority, now - ask.asked_at, top), has = use.in_use / use.weight,
      turn = max(use.turn, turn), ask = ask, id = ask.id,
    }
  end
  return ranks
end

-- twin: core/pool/fairness.py rank_asks
function admission.before(a, b)
  if a.risen ~= b.risen then return a.risen > b.risen end
  if a.has ~= b.has then return a.has < b.has end
  if a.turn ~= b.turn then return a.turn < b.turn end
  return a.id < b.id
end

-- A large ask that was overtaken for long enough keeps freed slots for itself, if they can suffice.
-- twin: core/pool/admission.py _keeps_freed_slots
function admission.collects(ask, denial, use)
  local lacks_room = (denial.reason == 'cap' or denial.reason == 'reserve') and ask.slots > 1
  return lacks_room and now - ask.asked_at >= pool.ageing_s and not admission.too_large(ask, use)
end

-- twin: core/pool/admission.py choose
function admission.draws_on(ask, awaited)
  for _, w in ipairs(pool.windows or {}) do
    if awaited[w.name] and window.cost_in(w, claims.cost(ask)) ~= 0 then return true end
  end
end

-- The next ask to grant, if any.
-- twin: core/pool/admission.py choose
function admission.choose(heads)
  local ranks = admission.ranked(heads, session.uses, pool.turn)
  table.sort(ranks, admission.before)
  local awaited
  for _, rank in ipairs(ranks) do
    local ask, use = rank.ask, session.uses[rank.ask.project]
    if not (awaited and admission.draws_on(ask, awaited)) then
      local denial = admission.judge(ask, use)
      if not denial then return ask end
      if denial.reason == 'window' then
        -- The first waits for room; smaller ones behind it would keep the window empty for ever.
        awaited = awaited or {}
        awaited[denial.window] = true
      end
      if admission.collects(ask, denial, use) then return nil end
    end
  end
end
