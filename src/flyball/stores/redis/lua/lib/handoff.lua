-- Giving slots out and taking them back. Mirrors stores/handoff.py; whatever frees something ends in hand_off.

-- twin: stores/handoff.py _room
function handoff.room()
  return (pool.phase == 'trial' and pool.ceiling or pool.cap) - pool.in_use
end

-- One waiter of the line must be awake: if the watcher left it, the newest of the others takes over.
-- twin: stores/handoff.py _keep_watch, _watch
function handoff.keep_watch()
  if pool.waiting == 0 or not handoff.gone[pool.watcher_id] then return end
  local newest = call('ZREVRANGE', PREFIX .. 'waiting', 0, 0)[1]
  if not newest then return end
  local claim = claims.find(tonumber(match(newest, '^%d+')))
  session.put('watcher_id', claim.id)
  claims.wake(claim)
end

-- twin: stores/handoff.py _note_capped
function handoff.note_capped(capped)
  if capped ~= pool.capped then session.put('capped', capped) end
end

-- The first of a line that could ever be granted. Lowered limits may have made others too large: they leave
-- the line, and their owners, told to look, ask again and hear why.
-- twin: stores/handoff.py _first_possible, _remove
function handoff.first_possible(head)
  while head do
    local why = admission.too_large(head, session.project(head.project))
    if not why then return head end
    claims.remove(head)
    handoff.gone[head.id] = true
    if head.pid == '0' then remote.drop_receipt(head) end
    session.record_fact(head, 'refused', why)
    claims.wake(head)
    head = claims.line_head(claims.line(head))
  end
end

-- Is it a process of the caller's host? Only from there it can be checked.
-- twin: stores/pool_session.py Environment.checkable
function handoff.checkable(claim)
  return claim.host .. '\t' .. claim.boot .. '\t' .. claim.pidns == session.here
end

-- Is its process stopped, so that it could not use a slot? nil: its host has not been asked yet.
-- no twin: a script cannot look at processes; its caller does, and sends the verdicts
function handoff.stands_still(claim)
  if claim.pid == '0' or claim.pid == session.pid or not handoff.checkable(claim) then return false end
  return session.stopped[claim.id]
end

-- Ask which of the next in each line are stopped, as many as ``room`` slots could serve. False: all is known.
-- no twin: a script cannot look at processes; it returns these questions to its caller
function handoff.ask_stopped(room)
  for _, head in ipairs(claims.line_heads()) do
    local claim, left = head, min(room, ASKED_AT_ONCE)
    while claim and left > 0 do
      local still = handoff.stands_still(claim)
      if still == nil then
        session.questions[#session.questions + 1] =
          table.concat({text(claim.id), claim.host, claim.boot, claim.pidns, claim.pid, claim.start}, '\t')
      end
      if not still then left = left - 1 end
      claim = left > 0 and claims.behind(claim)
    end
  end
  return #session.questions > 0
end

-- Note that a project was served, so that the next of equals comes first next time.
-- twin: stores/handoff.py _take_turn
function handoff.take_turn(winner)
  local use = session.uses[winner.project]
  session.put('turn', max(use.turn, pool.turn))
  use.turn = pool.turn + winner.slots / use.weight
  session.put_project(use)
end

-- twin: stores/handoff.py _grant_waiting
function handoff.grant_waiting(claim)
  claims.leave_line(claim)
  handoff.spend(claim)
  claim.granted_at = now
  -- A waiter that cannot be checked from here may have died in line: it must show that it lives.
  if not handoff.checkable(claim) then claim.expires_at = now + CONFIRM_S end
  claims.put(claim)
  claims.enter_held(claim)
  handoff.after_grant(claim)
  claims.wake(claim)
  local waited_s = now - claim.asked_at
  if waited_s >= FACT_FROM_S then
    session.record_fact(claim, 'granted', 'granted after waiting ' .. verdicts.span_words(waited_s) .. ' (' .. claim.why .. ')')
  end
end

-- twin: stores/handoff.py _asks
function handoff.heads(lines)
  local heads = {}
  for _, head in pairs(lines) do heads[#heads + 1] = head end
  return heads
end

-- Is there room, but too little for an ask that waits?
-- twin: stores/handoff.py _is_capped
function handoff.is_capped(lines)
  for _, ask in pairs(lines) do
    local denial = admission.judge(ask, session.uses[ask.project])
    if denial and (denial.reason == 'cap' or denial.reason == 'reserve') then return true end
  end
  return false
end

-- The lines with the ask of each that could be granted next. ``unchecked``: this line's head was looked at before.
-- twin: stores/handoff.py hand_off
function handoff.lines(unchecked)
  local lines = {}
  for _, head in ipairs(claims.line_heads()) do
    local line = claims.line(head)
    session.project(head.project)
    lines[line] = line == unchecked and head or handoff.first_possible(head)
  end
  return lines
end

-- Who left the line so far, and the line that was served last: what hand_off goes on with after a pause.
-- no twin: a script pauses for a plan and goes on with what it wrote down; Python plans in the same step
function handoff.progress(line)
  local left = {}
  for id in pairs(handoff.gone) do left[#left + 1] = text(id) end
  return table.concat(left, ',') .. '\t' .. line
end

-- Grant to the waiting while something fits. Where a plan or an answer is needed first: what to go on with, else nil.
-- twin: stores/handoff.py hand_off, next_to_grant
function handoff.hand_off(resume)
  local ids, unchecked = match(resume or '', '^([^\t]*)\t?(.*)$')
  for id in string.gmatch(ids, '%d+') do handoff.gone[tonumber(id)] = true end
  if pool.waiting == 0 then return nil end
  session.read_rest()
  if handoff.room() > 0 then
    local lines = handoff.lines(unchecked)
    while handoff.room() > 0 do
      local winner = admission.choose(handoff.heads(lines))
      if not winner then break end
      local line, still = claims.line(winner), handoff.stands_still(winner)
      if still == nil then
        handoff.ask_stopped(handoff.room())
        return handoff.progress(unchecked)
      elseif still then
        -- It keeps its place, and finds the word to look when it goes on.
        claims.wake(winner)
      else
        handoff.grant_waiting(winner)
        handoff.gone[winner.id] = true
        handoff.take_turn(winner)
        unchecked = line
        if session.is_stale() then return handoff.progress(line) end
      end
      lines[line] = handoff.room() > 0 and claims.behind(winner) or nil
    end
    handoff.note_capped(handoff.room() <= 0 or handoff.is_capped(lines))
  else
    handoff.note_capped(true)
  end
  handoff.keep_watch()
end

-- May an ask that fits start although others wait? Yes, if none of them could use what it takes: of each line
-- the first that is not stopped counts.
-- twin: stores/handoff.py may_pass, _first_awake
function handoff.may_pass(ask)
  session.read_rest()
  local heads, last = {}, 0
  for _, head in ipairs(claims.line_heads()) do
    while head and handoff.stands_still(head) do head = claims.behind(head) end
    if head then
      if head.project == ask.project and head.priority == ask.priority then return false end
      session.project(head.project)
      last = max(last, head.id)
      heads[#heads + 1] = head
    end
  end
  ask.id = last + 1
  heads[#heads + 1] = ask
  local first = admission.choose(heads)
  ask.id = 0
  return first == ask
end

-- Remove a claim. True if its project stopped competing, which raises every strict share.
-- twin: stores/handoff.py take_back, _remove
function handoff.take_back(claim, gone_already)
  if not gone_already then claims.remove(claim) end
  handoff.gone[claim.id] = true
  if not claim.granted_at and claim.pid == '0' then remote.drop_receipt(claim) end
  local use = session.find_project(claim.project)
  return pool.share == 'strict' and use and use.in_use == 0 and use.waiting == 0
end
