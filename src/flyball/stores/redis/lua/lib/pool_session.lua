-- One pool inside one script: read once, kept fresh, written back once. Mirrors stores/pool_session.py.
--
-- Limits are only compared here. Where the slow tempo has to speak (a plan that is stale, something in the
-- inbox) the script writes what it has, returns what a plan is made from, and is run again with the plan:
-- ARGV[4] is swapped in if no other process planned meanwhile, ARGV[3] says where to go on. In the same way a script
-- asks which waiters of its caller's host are stopped: ARGV[5] has the answers so far, as "id:1" or "id:0".
-- no twin: reads what the caller sends with every script
local PREFIX, pool = KEYS[1], nil
local session, shares = {moved = {}, uses = {}, moved_uses = {}, effects = {}, stopped = {}, questions = {}}, {}
local now

do
  local when, deadline
  when, deadline, session.chance, session.epoch, session.pid, session.here =
    match(ARGV[1], '^([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$')
  for id, stopped in string.gmatch(ARGV[5] or '', '(%d+):(%d)') do session.stopped[tonumber(id)] = stopped == '1' end
  if when == '' then
    local time = call('TIME')
    when = time[1] .. '.' .. string.sub('00000' .. time[2], -6)
  end
  now = tonumber(when)
  -- The caller has given up and may have asked again: what it wanted must not happen late.
  if deadline ~= '' and now > tonumber(deadline) then return {'kind', 'late', 'now', text(now)} end
end

-- no twin: what is to be done after the commit travels as lines (script_runner.py reads them)
function session.add_effect(line) session.effects[#session.effects + 1] = line end

-- Mailboxes that are channels of this space are told by the script itself.
-- no twin: only a server can tell a channel itself
function session.publish(mailbox, words)
  local channel, box = match(mailbox, '^(.*)#(%d+)$')
  local ours = match(PREFIX, '^(.*){[^{]*}:$') .. 'wake:'
  if channel and string.sub(channel, 1, #ours) == ours then call('PUBLISH', channel, box .. words) end
end

-- twin: stores/pool_session.py PoolSession.move_meters
function session.put(field, value)
  pool[field] = value
  session.moved[field] = true
end

-- -- projects -------------------------------------------------------------------------------------

-- twin: stores/redis/records.py parse_project
function session.parse_project(name, line)
  local in_use, waiting, weight, maximum, share, turn =
    match(line, '^([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)$')
  return {
    name = name, in_use = tonumber(in_use), waiting = tonumber(waiting), weight = tonumber(weight),
    maximum = tonumber(maximum), share = tonumber(share), turn = tonumber(turn),
  }
end

-- A project of this pool; false if there is none of that name.
-- twin: stores/memory_rows.py MemoryRows.project
function session.find_project(name)
  local use = session.uses[name]
  if use == nil then
    local line = call('HGET', PREFIX .. 'pool', 'use:' .. name)
    use = line and session.parse_project(name, line)
    session.uses[name] = use
  end
  return use
end

-- twin: stores/memory_rows.py MemoryRows.put_project
function session.put_project(use)
  session.uses[use.name] = use
  session.moved_uses[use.name] = true
end

-- twin: stores/redis/records.py parse_project
function session.project_line(use)
  return format('%d\t%d\t%s\t%s\t%s\t%s', use.in_use, use.waiting, text(use.weight), text(use.maximum),
    text(use.share), text(use.turn))
end

-- twin: stores/memory_rows.py MemoryRows.drop_idle_projects
function session.drop_idle_projects()
  if call('HLEN', PREFIX .. 'pool') <= PROJECTS_KEPT then return end
  local all = call('HGETALL', PREFIX .. 'pool')
  for i = 1, #all, 2 do
    local name = match(all[i], '^use:(.*)$')
    -- What a person said about a project stays; the counts of an idle one are 0.
    if name and match(all[i + 1], '^0\t0\t1\t\t') and not session.moved_uses[name] then
      call('HDEL', PREFIX .. 'pool', all[i])
      session.uses[name] = nil
    end
  end
end

-- twin: stores/pool_session.py PoolSession.project
function session.project(name)
  local use = session.find_project(name)
  if not use then
    session.drop_idle_projects()
    use = {name = name, in_use = 0, waiting = 0, weight = 1, turn = 0}
    session.put_project(use)
  end
  return use
end

-- -- reading and writing ----------------------------------------------------------------------------

-- What a grant needs; with a project also that one. What needs more calls read_rest.
-- twin: stores/redis/records.py pool_row
function session.read(project)
  local v = call('HMGET', PREFIX .. 'pool', 'valid_until', 'cap', 'ceiling', 'reserve', 'phase', 'closed_until',
    'spacing_s', 'share', 'next_grant_at', 'trial_id', 'work', 'windows', 'in_use', 'low_in_use', 'waiting',
    'next_id', 'events', 'by_success', 'use:' .. (project or ''), 'open_above')
  if not v[1] then
    pool = nil
    return
  end
  pool = {
    valid_until = tonumber(v[1]), cap = tonumber(v[2]), ceiling = tonumber(v[3]), reserve = tonumber(v[4]),
    phase = v[5], closed_until = tonumber(v[6]), spacing_s = tonumber(v[7]), share = v[8],
    next_grant_at = tonumber(v[9]), trial_id = tonumber(v[10]), work = tonumber(v[11]),
    windows = v[12] ~= '' and window.parse(v[12]) or nil, in_use = tonumber(v[13]), low_in_use = tonumber(v[14]),
    waiting = tonumber(v[15]), next_id = tonumber(v[16]), events = tonumber(v[17]), by_success = v[18] == '1',
    open_above = tonumber(v[20] or ''),
  }
  if v[19] then session.uses[project] = session.parse_project(project, v[19]) end
end

-- Everything else that a denial, a hand-out or an end asks about.
-- twin: stores/redis/records.py pool_row
function session.read_rest()
  if pool.ageing_s then return end
  local v = call('HMGET', PREFIX .. 'pool', 'spacing_jitter', 'ageing_s', 'capped', 'bound_oks', 'hold_mean_s',
    'high', 'turn', 'work_tokens', 'watcher_id', 'refused_at', 'bound_at')
  pool.spacing_jitter, pool.ageing_s, pool.capped = tonumber(v[1]), tonumber(v[2]), v[3] == '1'
  pool.bound_oks, pool.hold_mean_s, pool.high = tonumber(v[4]), tonumber(v[5]), tonumber(v[6])
  pool.turn, pool.work_tokens, pool.watcher_id = tonumber(v[7]), tonumber(v[8]), tonumber(v[9])
  pool.refused_at, pool.bound_at = tonumber(v[10]), tonumber(v[11]) or -math.huge
end

-- twin: core/pool/model.py PoolCounts.fill
function session.is_full()
  local kept = min(pool.reserve, pool.cap - 1)
  return pool.in_use >= pool.cap or (kept > 0 and pool.low_in_use >= pool.cap - kept)
end

-- A cap that grows by success must not wait for the plan to get old.
-- twin: stores/handoff.py plan_soon
function session.plan_soon()
  local soon = now + FOLD_EVERY_S
  if pool.valid_until > soon and pool.cap < pool.ceiling and pool.by_success then session.put('valid_until', soon) end
end

-- twin: core/pool/model.py Meters.note_hold
function session.note_hold(held_s)
  local weight = pool.hold_mean_s ~= 0 and HOLD_SMOOTHING or 1
  session.put('hold_mean_s', pool.hold_mean_s + (held_s - pool.hold_mean_s) * weight)
end

-- twin: stores/redis/records.py plan_fields
function session.write()
  local row, n = {}, 0
  for field in pairs(session.moved) do
    local value = pool[field]
    if field == 'windows' then
      value = window.lines(value or {})
    elseif value == true then
      value = '1'
    elseif value == false then
      value = '0'
    elseif type(value) ~= 'string' then
      value = text(value)
    end
    row[n + 1], row[n + 2] = field, value
    n = n + 2
  end
  for name in pairs(session.moved_uses) do
    row[n + 1], row[n + 2] = 'use:' .. name, session.project_line(session.uses[name])
    n = n + 2
  end
  if n > 0 then call('HSET', PREFIX .. 'pool', unpack(row)) end
  session.moved, session.moved_uses = {}, {}
end

-- -- what happened ----------------------------------------------------------------------------------

-- line: when, kind, words, project, name, pid
-- twin: stores/redis/records.py fact_line, parse_fact
function session.keep_fact(list, kept, line)
  local number = call('HINCRBY', PREFIX .. 'pool', 'facts', 1)
  call('LPUSH', PREFIX .. list, text(number) .. '\t' .. line)
  call('LTRIM', PREFIX .. list, 0, kept - 1)
end

-- twin: stores/pool_session.py PoolSession.record_facts, ask_fact
function session.record_fact(claim, kind, words)
  local line = table.concat({text(now), kind, words, claim.project, claim.name, claim.pid}, '\t')
  if kind == 'trial' then
    session.keep_fact('pool-facts', POOL_FACTS_KEPT, line)
  else
    session.keep_fact('ask-facts', ASK_FACTS_KEPT, line)
  end
  session.add_effect('f\t' .. line)
end

-- -- the slow tempo ---------------------------------------------------------------------------------

-- A meter that grants and ends moved while the plan was made: what they added stays added.
-- no twin: only here do grants and ends go on while a plan is made
function session.merge_meter(field, was, planned)
  local is = call('HGET', PREFIX .. 'pool', field)
  if is == was then return planned end
  if field == 'windows' then return window.merged(is, was, planned) end
  if field == 'valid_until' or field == 'pot:until' then return text(min(tonumber(is), tonumber(planned))) end
  if field == 'high' then return text(max(tonumber(planned), tonumber(is) > tonumber(was) and tonumber(is) or 0)) end
  return text(max(0, tonumber(planned) + tonumber(is) - tonumber(was)))
end

-- twin: stores/redis/script_runner.py payload, block_payload
-- twin: stores/redis/pool_image.py PoolImage.changes
function session.install_plan(payload)
  local plan = cjson.decode(payload)
  if plan.block then
    local next_id = tonumber(call('HGET', PREFIX .. 'pool', 'next_id'))
    if next_id and next_id % ID_BLOCK == 0 then call('HSET', PREFIX .. 'pool', 'next_id', plan.block) end
    return
  end
  if shares.outdated(plan) then return end
  local version = call('HGET', PREFIX .. 'pool', 'version') or ''
  -- What was planned for a pool that was removed meanwhile says nothing about the next one of its name.
  if plan.version ~= version and (plan.planned or version == '') then return end
  local row = {}
  for field, value in pairs(plan.pool) do
    row[#row + 1] = field
    row[#row + 1] = plan.read[field] and session.merge_meter(field, plan.read[field], value) or value
  end
  call('HSET', PREFIX .. 'pool', unpack(row))
  if plan.read['pot:until'] then shares.look_in_time() end
  if plan.heard > 0 then
    call('LTRIM', PREFIX .. 'inbox', plan.heard, -1)
    call('HSET', PREFIX .. 'pool', 'events', call('LLEN', PREFIX .. 'inbox'))
  end
  if plan.pool.plain == '1' and call('HGET', PREFIX .. 'pool', 'windows') ~= '' then
    call('HSET', PREFIX .. 'pool', 'plain', '0')
  end
  for name, terms in pairs(plan.projects) do
    local use = session.find_project(name) or {name = name, in_use = 0, waiting = 0, turn = 0}
    use.weight, use.maximum, use.share = tonumber(terms[1]), tonumber(terms[2]), tonumber(terms[3])
    session.put_project(use)
  end
  session.write()
  shares.divide(plan)
  for _, fact in ipairs(plan.facts) do session.keep_fact('pool-facts', POOL_FACTS_KEPT, fact) end
  session.add_effect('i')
end

-- twin: stores/pool_session.py PoolSession.refresh_if_stale
function session.is_stale()
  local valid_for_s = pool.valid_until - now
  -- A plan that claims to hold for very long was made on a clock that has since gone back.
  return pool.events > 0 or valid_for_s <= 0 or valid_for_s > 2 * FOREVER_S
end

-- The reply of a script that cannot go on by itself: names and values in turn. Of the kind 'plan' it has everything
-- a plan is made from, and where to go on once there is one (``divide``: share leases need one too); of the kind
-- 'stopped' the questions that have to be answered first. A script that is done returns one text.
-- twin: stores/redis/script_runner.py parse_state
function session.ask_for_plan(resume, head, whole, divide)
  session.write()
  if #session.questions > 0 then
    return {
      'kind', 'stopped', 'resume', resume or '', 'head', head or '', 'effects', table.concat(session.effects, '\n'),
      'questions', session.questions,
    }
  end
  -- A change that a person asks for may still be refused: no other process holds back for it.
  local rows, targets, epoch = shares.state(divide, not whole)
  whole = whole or (pool and pool.share == 'strict')
  local trial = pool and pool.trial_id
  return {
    'kind', 'plan', 'resume', resume or '', 'head', head or '', 'effects', table.concat(session.effects, '\n'),
    'now', text(now),
    'pool', call('HGETALL', PREFIX .. 'pool'),
    'inbox', pool and pool.events > 0 and call('LRANGE', PREFIX .. 'inbox', 0, -1) or {},
    'demands', whole and call('HGETALL', PREFIX .. 'demands') or {},
    'trial_live', trial and call('HEXISTS', PREFIX .. 'claims', text(trial)) or 0,
    'shares', rows, 'targets', targets, 'epoch', epoch, 'divide', divide and '1' or '',
  }
end

-- Something the plan must fold; it is folded even if the caller dies now.
-- twin: stores/redis/script_runner.py fold_inbox
function session.add_to_inbox(event)
  call('RPUSH', PREFIX .. 'inbox', event)
  call('LTRIM', PREFIX .. 'inbox', -INBOX_KEPT, -1)
  session.put('events', call('LLEN', PREFIX .. 'inbox'))
end

-- Reads the pool. Returns what the script has to return first, if anything. ``unless``: an old plan will do.
-- ``resume``: where to go on, if the caller was not told.
-- twin: stores/pool_session.py PoolSession.refresh_if_stale
function session.open(project, unless, resume)
  if ARGV[4] and ARGV[4] ~= '' then session.install_plan(ARGV[4]) end
  session.read(project)
  if not pool or (session.is_stale() and not (unless and unless())) then
    return session.ask_for_plan((ARGV[3] or '') ~= '' and ARGV[3] or resume)
  end
end

-- A new claim needs an id: a reply of the kind 'block' asks for more of them.
-- twin: stores/pool_session.py PoolSession.take_id
function session.ask_for_ids()
  return pool.next_id % ID_BLOCK == 0 and {'kind', 'block', 'effects', table.concat(session.effects, '\n')}
end

-- twin: stores/pool_session.py PoolSession.finish
function session.finish(head)
  session.write()
  if #session.effects == 0 then return head end
  return head .. '\n' .. table.concat(session.effects, '\n')
end
