-- Grant, park in line, or refuse.
--
-- What has to be returned first, if anything; else what is said, and the claim where there is one.
-- twin: stores/operations.py StoreOperations._admit, StoreOperations._not_now, take_back_expired
-- twin: stores/handoff.py stand_in_line
function admit.run(argument)
  local stage, rest = match(ARGV[3] or '', '^(%a*) ?(.*)$')
  local ask, park = {id = 0, asked_at = now, level = 0, why = '', marks_text = '', ended = ''}, nil
  park, ask.project, ask.name, ask.pid, ask.slots, ask.priority, ask.cost_text, ask.tag, ask.who =
    match(argument, '^([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$')
  park, ask.unread = match(park, '^(1?)(.*)$')
  ask.unread = ask.unread == 'u' and '1' or ''
  ask.slots, ask.priority = tonumber(ask.slots), tonumber(ask.priority)
  local unready = desk.open(ask.project)
  if unready then return unready end
  local unnumbered = desk.needs_ids()
  if unnumbered then return unnumbered end
  local use, denial = desk.project(ask.project), nil

  -- Strict sharing: the plan has not counted this project, and its arrival changes everybody's share.
  local function arrives()
    return pool.share == 'strict' and (use.share or 0) == 0 and use.in_use == 0 and use.waiting == 0
  end

  if stage == '' or stage == 'arrived' then
    if stage == '' and arrives() then
      desk.inform('arrived\t' .. ask.project)
      return desk.state('arrived')
    end
    denial = admit.judge(ask, use)
    -- What time has freed belongs to those in line; nobody overtakes them by arriving late.
    if not denial and pool.waiting > 0 then stage = 'serve' end
  end
  if stage == 'serve' then
    local unplanned = handout.hand_out(rest)
    if unplanned then return desk.state('serve ' .. unplanned) end
    stage = 'served'
    if arrives() then
      desk.inform('arrived\t' .. ask.project)
      return desk.state('served')
    end
  end
  if stage == 'served' then
    denial = admit.judge(ask, use)
    if not denial and handout.ask_stopped(1) then return desk.state('served') end
    if not denial and not handout.may_pass(ask) then denial = {reason = 'queue'} end
  end
  while denial do
    -- Whoever stands in the way may be long gone.
    local over = keys.expired()
    if not over then break end
    keys.tell_over(over)
    if handout.take_back(over) then
      desk.inform('left')
      return desk.state('serve ' .. text(over.id))
    end
    local unplanned = handout.hand_out('')
    if unplanned then return desk.state('serve ' .. unplanned) end
    denial = admit.judge(ask, use)
    if not denial and handout.ask_stopped(1) then return desk.state('served') end
    if not denial and not handout.may_pass(ask) then denial = {reason = 'queue'} end
  end
  if not denial then
    handout.grant_new(ask)
    return nil, granted_text(ask), ask
  end
  local refusal = answers.never(ask)
  local verdict = refusal or answers.denied(ask, park == '1' and 'parked' or 'refused', denial, answers.place_of(ask))
  local why = answers.why(verdict)
  if refusal or park ~= '1' then
    desk.tell(ask, 'refused', why)
    return nil, answers.text(verdict)
  end
  -- The newest in line watches: it arrived awake, and it is there longest.
  ask.id, ask.why = claims.take_id(), why
  claims.put(ask)
  claims.enter_line(ask)
  desk.put('watcher_id', ask.id)
  verdict.id, verdict.watch = ask.id, true
  return nil, answers.text(verdict), ask
end
