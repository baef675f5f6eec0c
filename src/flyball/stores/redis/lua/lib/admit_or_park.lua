-- Grant, park in line, or refuse.
--
-- What has to be returned first, if anything; else what is said, and the claim where there is one.
-- twin: stores/operations.py StoreOperations._admit, StoreOperations._park_or_refuse, take_back_expired
-- twin: stores/handoff.py enqueue
function admission.admit_or_park(argument)
  local stage, rest = match(ARGV[3] or '', '^(%a*) ?(.*)$')
  local ask, park = {id = 0, asked_at = now, level = 0, why = '', marks_text = '', ended = ''}, nil
  park, ask.project, ask.name, ask.pid, ask.slots, ask.priority, ask.cost_text, ask.tag, ask.who =
    match(argument, '^([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$')
  park, ask.unread = match(park, '^(1?)(.*)$')
  ask.unread = ask.unread == 'u' and '1' or ''
  ask.slots, ask.priority = tonumber(ask.slots), tonumber(ask.priority)
  local unready = session.open(ask.project)
  if unready then return unready end
  local unnumbered = session.ask_for_ids()
  if unnumbered then return unnumbered end
  local use, denial = session.project(ask.project), nil

  -- Strict sharing: the plan has not counted this project, and its arrival changes every share.
  local function arrives()
    return pool.share == 'strict' and (use.share or 0) == 0 and use.in_use == 0 and use.waiting == 0
  end

  if stage == '' or stage == 'arrived' then
    if stage == '' and arrives() then
      session.add_to_inbox('arrived\t' .. ask.project)
      return session.ask_for_plan('arrived')
    end
    denial = admission.judge(ask, use)
    -- What time has freed belongs to those in line; a late arrival does not overtake them.
    if not denial and pool.waiting > 0 then stage = 'serve' end
  end
  if stage == 'serve' then
    local unplanned = handoff.hand_off(rest)
    if unplanned then return session.ask_for_plan('serve ' .. unplanned) end
    stage = 'served'
    if arrives() then
      session.add_to_inbox('arrived\t' .. ask.project)
      return session.ask_for_plan('served')
    end
  end
  if stage == 'served' then
    denial = admission.judge(ask, use)
    if not denial and handoff.ask_stopped(1) then return session.ask_for_plan('served') end
    if not denial and not handoff.may_pass(ask) then denial = {reason = 'queue'} end
  end
  while denial do
    -- What stands in the way may be long over.
    local over = remote.first_expired()
    if not over then break end
    remote.record_expiry(over)
    if handoff.take_back(over) then
      session.add_to_inbox('left')
      return session.ask_for_plan('serve ' .. text(over.id))
    end
    local unplanned = handoff.hand_off('')
    if unplanned then return session.ask_for_plan('serve ' .. unplanned) end
    denial = admission.judge(ask, use)
    if not denial and handoff.ask_stopped(1) then return session.ask_for_plan('served') end
    if not denial and not handoff.may_pass(ask) then denial = {reason = 'queue'} end
  end
  if not denial then
    handoff.grant_new(ask)
    return nil, granted_line(ask), ask
  end
  local refusal = verdicts.refusal_if_impossible(ask)
  local verdict = refusal or verdicts.denial_verdict(ask, park == '1' and 'parked' or 'refused', denial, verdicts.queue_position(ask))
  local why = verdicts.why(verdict)
  if refusal or park ~= '1' then
    session.record_fact(ask, 'refused', why)
    return nil, verdicts.line(verdict)
  end
  -- The newest in line watches: it arrived awake, and it is there longest.
  ask.id, ask.why = claims.take_id(), why
  claims.put(ask)
  claims.enter_line(ask)
  session.put('watcher_id', ask.id)
  verdict.id, verdict.watch = ask.id, true
  return nil, verdicts.line(verdict), ask
end
