-- Who of the waiting is next. Mirrors the second half of core/pool/admission.py and in_line in stores/verdicts.py.

-- As Python's float //: not always the floor of the quotient.
-- no twin: // of two floats
function admit.floordiv(a, b)
  local quotient = (a - math.fmod(a, b)) / b
  local whole = math.floor(quotient)
  if quotient - whole > 0.5 then whole = whole + 1 end
  return whole
end

-- twin: core/pool/admission.py aged
function admit.aged(priority, waited_s, top)
  return min(top, priority + admit.floordiv(max(0, waited_s), pool.ageing_s))
end

-- Ranks asks by aged priority, then the neediest project, then arrival.
-- twin: core/pool/admission.py in_order
function admit.ranked(asks, uses, turn)
  local top = -math.huge
  for _, ask in ipairs(asks) do top = max(top, ask.priority) end
  local ranks = {}
  for i, ask in ipairs(asks) do
    local use = uses[ask.project]
    ranks[i] = {
      risen = admit.aged(ask.priority, now - ask.asked_at, top), has = use.in_use / use.weight,
      turn = max(use.turn, turn), ask = ask, id = ask.id,
    }
  end
  return ranks
end

-- twin: core/pool/admission.py in_order
function admit.before(a, b)
  if a.risen ~= b.risen then return a.risen > b.risen end
  if a.has ~= b.has then return a.has < b.has end
  if a.turn ~= b.turn then return a.turn < b.turn end
  return a.id < b.id
end

-- A large ask that was overtaken for long enough keeps freed slots for itself, if they can suffice.
-- twin: core/pool/admission.py _collects
function admit.collects(ask, denial, use)
  local lacks_room = (denial.reason == 'cap' or denial.reason == 'reserve') and ask.slots > 1
  return lacks_room and now - ask.asked_at >= pool.ageing_s and not admit.too_large(ask, use)
end

-- twin: core/pool/admission.py choose
function admit.draws_on(ask, awaited)
  for _, w in ipairs(pool.windows or {}) do
    if awaited[w.name] and window.cost_in(w, claims.cost(ask)) ~= 0 then return true end
  end
end

-- The next ask to grant, if any.
-- twin: core/pool/admission.py choose
function admit.choose(heads)
  local ranks = admit.ranked(heads, desk.uses, pool.turn)
  table.sort(ranks, admit.before)
  local awaited
  for _, rank in ipairs(ranks) do
    local ask, use = rank.ask, desk.uses[rank.ask.project]
    if not (awaited and admit.draws_on(ask, awaited)) then
      local denial = admit.judge(ask, use)
      if not denial then return ask end
      if denial.reason == 'window' then
        -- Whoever is first waits for room; smaller ones behind it would keep the window empty for ever.
        awaited = awaited or {}
        awaited[denial.window] = true
      end
      if admit.collects(ask, denial, use) then return nil end
    end
  end
end

-- twin: stores/memory_rows.py MemoryRows.waiting
function answers.waiting_asks()
  local asks = {}
  for i, line in ipairs(call('ZRANGE', PREFIX .. 'waiting', 0, EXACT_PLACES - 1)) do
    local id, project, priority, slots, asked_at = match(line, '^([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$')
    asks[i] = {
      id = tonumber(id), project = project, priority = tonumber(priority), slots = tonumber(slots),
      asked_at = tonumber(asked_at),
    }
  end
  return asks
end

-- Asks as lines of (project, priority), with a copy of the projects to play with.
-- twin: stores/verdicts.py in_line
function answers.lines_of(asks)
  local lines, by_key, uses = {}, {}, {}
  for _, ask in ipairs(asks) do
    local key = ask.project .. '\0' .. ask.priority
    if not by_key[key] then
      by_key[key] = {first = 1}
      lines[#lines + 1] = by_key[key]
    end
    table.insert(by_key[key], ask)
    ask.line = by_key[key]
    if not uses[ask.project] then
      local use = desk.project(ask.project)
      uses[ask.project] = {in_use = use.in_use, weight = use.weight, turn = use.turn}
    end
  end
  return lines, uses
end

-- The place in the order of service; in a long line, where that is dear, the order of arrival.
-- twin: stores/verdicts.py place_of, in_line
function answers.place_of(ask)
  desk.rest()
  if pool.waiting > EXACT_PLACES then
    return (ask.id ~= 0 and call('ZCOUNT', PREFIX .. 'waiting', '-inf', '(' .. text(ask.id)) or pool.waiting) + 1
  end
  local asks, mine = answers.waiting_asks(), ask.id
  if mine == 0 then
    mine = 1 + (#asks > 0 and asks[#asks].id or 0)
    asks[#asks + 1] = {
      id = mine, project = ask.project, priority = ask.priority, slots = ask.slots, asked_at = ask.asked_at,
    }
  end
  local lines, uses = answers.lines_of(asks)
  if #lines == 1 then
    for place, one in ipairs(asks) do
      if one.id == mine then return place end
    end
  end
  local turn, place = pool.turn, 0
  while true do
    local heads = {}
    for _, line in ipairs(lines) do heads[#heads + 1] = line[line.first] end
    local best
    for _, rank in ipairs(admit.ranked(heads, uses, turn)) do
      if not best or admit.before(rank, best) then best = rank end
    end
    place = place + 1
    local first = best.ask
    if first.id == mine then return place end
    first.line.first = first.line.first + 1
    local use = uses[first.project]
    turn = max(use.turn, turn)
    use.in_use, use.turn = use.in_use + first.slots, turn + first.slots / use.weight
  end
end

-- How a waiting (or refused) ask stands, with everything a person would ask about.
-- twin: stores/verdicts.py waiting
function answers.waiting(ask, kind, position)
  return answers.denied(ask, kind, admit.judge(ask, desk.project(ask.project)) or {reason = 'queue'}, position)
end
