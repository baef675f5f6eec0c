-- The whole answer, for programs and for people. Mirrors core/pool/verdict.py and stores/verdicts.py.
local answers = {}

-- twin: core/pool/verdict.py span_words
function answers.span_words(seconds)
  if seconds < 90 then return format('%.0f s', max(1, tonumber(format('%.0f', seconds)))) end
  if seconds < 90 * 60 then return format('%.0f min', seconds / 60) end
  if seconds < 36 * 3600 then return format('%.0f h', seconds / 3600) end
  return format('%.0f d', seconds / 86400)
end

-- The braces of the keys hold it, with its own braces written as numbers.
-- no twin: the keys carry the name; Python has it
function answers.pool_name()
  return (string.gsub(match(PREFIX, '{(.*)}:$'), '%%(%x%x)', function(hex) return string.char(tonumber(hex, 16)) end))
end

-- twin: core/pool/verdict.py Verdict.why, Blocker.words
function answers.why(v)
  local parts = {answers.pool_name() .. format(' %d/%d', v.in_use, v.cap)}
  if v.reserved ~= 0 then parts[#parts + 1] = format('%d reserved', v.reserved) end
  local phrase = v.detail ~= '' and v.detail or (PHRASES)[v.reason]
  if phrase then parts[#parts + 1] = phrase end
  if v.position > 1 then parts[#parts + 1] = format('place %d in line', v.position) end
  if v.estimate_s and v.reason ~= 'too-large' then
    parts[#parts + 1] = 'next slot ~' .. answers.span_words(v.estimate_s)
  end
  local b = v.blocker
  local tail = b and ' (' .. b.project .. '/' .. b.name .. (tostring(b.pid) == '0' and ', a remote client)' or ', pid ' .. b.pid .. ')') or ''
  return table.concat(parts, ', ') .. tail
end

-- twin: stores/redis/records.py verdict_of
function answers.text(v)
  local b = v.blocker or {project = '', name = '', pid = '', host = '', age_s = nil}
  return table.concat({
    v.kind, text(v.id), text(v.in_use), text(v.cap), v.reason, text(v.reserved), text(v.position),
    text(v.look_again_s), text(v.estimate_s), v.watch and '1' or '', v.detail,
    b.project, b.name, b.pid, b.host, text(b.age_s), text(v.project_in_use), text(v.project_maximum),
    text(v.asked_at),
  }, '\t')
end

-- twin: stores/verdicts.py _blocker
function answers.blocker(ask, reason)
  local holder
  if reason == 'trial' and pool.trial_id then
    holder = claims.of(pool.trial_id)
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
function answers.place_in_way(ask, denial, use, position)
  if denial.reason ~= 'maximum' then return position end
  return min(position, use.waiting + (ask.id ~= 0 and 0 or 1))
end

-- twin: core/pool/admission.py estimate_s
function answers.estimate_s(denial, use, position, oldest_s)
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
  return known + max(1, position) * pool.hold_mean_s / pool.in_use
end

-- twin: stores/verdicts.py denied
function answers.denied(ask, kind, denial, position)
  desk.rest()
  local use, blocker = desk.project(ask.project), answers.blocker(ask, denial.reason)
  position = answers.place_in_way(ask, denial, use, position)
  return {
    kind = kind, reason = denial.reason, id = ask.id, asked_at = ask.asked_at, in_use = pool.in_use, cap = pool.cap,
    reserved = ask.priority <= 0 and min(pool.reserve, pool.cap - 1) or 0, position = position,
    look_again_s = max(0, (denial.till or pool.valid_until) - now),
    estimate_s = answers.estimate_s(denial, use, position, blocker and blocker.age_s), blocker = blocker,
    project_in_use = use.in_use, project_maximum = use.maximum,
    detail = denial.detail or '', watch = ask.id ~= 0 and pool.watcher_id == ask.id,
  }
end

-- twin: stores/verdicts.py never
function answers.never(ask)
  local why = admit.too_large(ask, desk.project(ask.project))
  return why and answers.denied(ask, 'refused', {reason = 'too-large', detail = why}, 0)
end
