-- The whole answer, for programs and for people. Mirrors core/pool/verdict.py and stores/verdicts.py.
local verdicts = {}

-- twin: core/pool/verdict.py span_words
function verdicts.span_words(seconds)
  if seconds < 90 then return format('%.0f s', max(1, tonumber(format('%.0f', seconds)))) end
  if seconds < 90 * 60 then return format('%.0f min', seconds / 60) end
  if seconds < 36 * 3600 then return format('%.0f h', seconds / 3600) end
  return format('%.0f d', seconds / 86400)
end

-- The braces of the keys hold it, with its own braces written as numbers.
-- no twin: the keys carry the name; Python has it
function verdicts.pool_name()
  return (string.gsub(match(PREFIX, '{(.*)}:$'), '%%(%x%x)', function(hex) return string.char(tonumber(hex, 16)) end))
end

-- twin: core/pool/verdict.py Verdict.why, Blocker.words
function verdicts.why(v)
  local parts = {verdicts.pool_name() .. format(' %d of %d in use', v.in_use, v.cap)}
  if v.reserved ~= 0 then parts[#parts + 1] = format('%d reserved', v.reserved) end
  local phrase = v.detail ~= '' and v.detail or (PHRASES)[v.reason]
  if phrase then parts[#parts + 1] = phrase end
  if v.position > 1 then parts[#parts + 1] = format('place %d in line', v.position) end
  if v.estimate_s and v.reason ~= 'too-large' then
    parts[#parts + 1] = 'next slot ~' .. verdicts.span_words(v.estimate_s)
  end
  if v.usual_s then
    parts[#parts + 1] = 'longer than usual (' .. verdicts.span_words(v.usual_s) .. '), no estimate'
  end
  local b = v.blocker
  local tail = b and format('; the %s is %s/%s, ', v.reason == 'trial' and 'trial' or 'longest', b.project, b.name)
    .. verdicts.span_words(b.age_s) or ''
  return table.concat(parts, ', ') .. tail
end

-- twin: stores/redis/records.py parse_verdict
function verdicts.line(v)
  local b = v.blocker or {project = '', name = '', pid = '', host = '', age_s = nil}
  return table.concat({
    v.kind, text(v.id), text(v.in_use), text(v.cap), v.reason, text(v.reserved), text(v.position),
    text(v.look_again_s), text(v.estimate_s), v.watch and '1' or '', v.detail,
    b.project, b.name, b.pid, b.host, text(b.age_s), text(v.project_in_use), text(v.project_maximum),
    text(v.asked_at), text(v.usual_s),
  }, '\t')
end

-- twin: stores/verdicts.py _blocker
function verdicts.blocker(ask, reason)
  local holder
  if reason == 'trial' and pool.trial_id then
    holder = claims.find(pool.trial_id)
  elseif reason == 'share' or reason == 'maximum' then
    holder = claims.oldest_lease(ask.project)
  elseif reason == 'cap' or reason == 'reserve' or reason == 'queue' then
    holder = claims.oldest_lease()
  end
  if not holder or not holder.granted_at then return nil end
  return {
    project = holder.project, name = holder.name, pid = holder.pid, host = holder.host,
    age_s = max(0, now - holder.granted_at),
  }
end

-- The place in the line that matters: at its own maximum a project waits for its own leases alone.
-- twin: core/pool/admission.py place_in_way
function verdicts.place_in_way(ask, denial, use, position)
  if denial.reason ~= 'maximum' then return position end
  return min(position, use.waiting + (ask.id ~= 0 and 0 or 1))
end

-- twin: core/pool/admission.py is_overdue
function verdicts.is_overdue(denial, oldest_s)
  local reason = denial.reason
  if not oldest_s or pool.hold_mean_s <= 0 or pool.in_use == 0 then return false end
  if reason ~= 'cap' and reason ~= 'reserve' and reason ~= 'queue' then return false end
  return oldest_s > pool.hold_mean_s * (1 + math.log(pool.in_use))
end

-- twin: core/pool/admission.py estimate_s
function verdicts.estimate_s(denial, use, position, oldest_s)
  if denial.reason == 'maximum' and oldest_s then
    local mean_s = pool.hold_mean_s > 0 and pool.hold_mean_s or oldest_s
    if mean_s <= 0 then return nil end
    return max(1, position) / ((use.in_use - 1) / mean_s + 1 / max(mean_s, oldest_s))
  end
  local known = denial.till and max(0, denial.till - now) or 0
  if denial.reason ~= 'share' and denial.till and position <= 1 then return known end
  if pool.hold_mean_s <= 0 or pool.in_use == 0 then
    return denial.till and denial.reason ~= 'share' and known or nil
  end
  if verdicts.is_overdue(denial, oldest_s) then return nil end
  return known + max(1, position) * pool.hold_mean_s / pool.in_use
end

-- twin: stores/verdicts.py denial_verdict
function verdicts.denial_verdict(ask, kind, denial, position)
  session.read_rest()
  local use, blocker = session.project(ask.project), verdicts.blocker(ask, denial.reason)
  position = verdicts.place_in_way(ask, denial, use, position)
  return {
    kind = kind, reason = denial.reason, id = ask.id, asked_at = ask.asked_at, in_use = pool.in_use, cap = pool.cap,
    reserved = ask.priority <= 0 and min(pool.reserve, pool.cap - 1) or 0, position = position,
    look_again_s = max(0, (denial.till or pool.valid_until) - now),
    estimate_s = verdicts.estimate_s(denial, use, position, blocker and blocker.age_s), blocker = blocker,
    usual_s = verdicts.is_overdue(denial, blocker and blocker.age_s) and pool.hold_mean_s or nil,
    project_in_use = use.in_use, project_maximum = use.maximum,
    detail = denial.detail or '', watch = ask.id ~= 0 and pool.watcher_id == ask.id,
  }
end

-- twin: stores/verdicts.py refusal_if_impossible
function verdicts.refusal_if_impossible(ask)
  local why = admission.too_large(ask, session.project(ask.project))
  return why and verdicts.denial_verdict(ask, 'refused', {reason = 'too-large', detail = why}, 0)
end

-- twin: stores/memory_rows.py MemoryRows.waiting
function verdicts.waiting_asks()
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
-- twin: stores/verdicts.py queue_order
function verdicts.lines(asks)
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
      local use = session.project(ask.project)
      uses[ask.project] = {in_use = use.in_use, weight = use.weight, turn = use.turn}
    end
  end
  return lines, uses
end

-- The place in the order of service; in a long line, where that is dear, the order of arrival.
-- twin: stores/verdicts.py queue_position, queue_order
function verdicts.queue_position(ask)
  session.read_rest()
  if pool.waiting > EXACT_PLACES then
    return (ask.id ~= 0 and call('ZCOUNT', PREFIX .. 'waiting', '-inf', '(' .. text(ask.id)) or pool.waiting) + 1
  end
  local asks, mine = verdicts.waiting_asks(), ask.id
  if mine == 0 then
    mine = 1 + (#asks > 0 and asks[#asks].id or 0)
    asks[#asks + 1] = {
      id = mine, project = ask.project, priority = ask.priority, slots = ask.slots, asked_at = ask.asked_at,
    }
  end
  local lines, uses = verdicts.lines(asks)
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
    for _, rank in ipairs(admission.ranked(heads, uses, turn)) do
      if not best or admission.before(rank, best) then best = rank end
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
-- twin: stores/verdicts.py waiting_verdict
function verdicts.waiting_verdict(ask, kind, position)
  return verdicts.denial_verdict(ask, kind, admission.judge(ask, session.project(ask.project)) or {reason = 'queue'}, position)
end
