-- A lease ends: what that teaches the meters, before its slots are handed on.

-- twin: stores/handoff.py _settle_windows
function handoff.settle_windows(claim, r)
  local sent_at = claim.granted_at or now
  if r.buckets ~= '' then
    local mark = record.amounts(claim.marks_text)
    local windows = window.learn(pool.windows or {}, window.buckets(r.buckets), sent_at, mark, now)
    pool.windows = #windows > 0 and windows or nil
    session.moved.windows = true
    session.put('plain', false)
  end
  if r.rejected and pool.work > 0 then
    -- Some of those refused were sent before counting began; it must not end with them.
    session.put('work', max(1, pool.work - 1))
    session.put('work_tokens', max(0, pool.work_tokens - (claims.cost(claim).tokens or 0)))
  end
  if pool.windows and (r.rejected or r.used ~= '') then
    local mark = record.amounts(claim.marks_text)
    session.moved.windows = true
    if r.rejected then
      window.refund(pool.windows, claims.cost(claim), sent_at, mark, now)
    else
      window.settle(pool.windows, claims.cost(claim), record.amounts(r.used), sent_at, mark, now)
    end
  end
end

-- What a call used counts in its project's turn, where others wait for theirs.
-- twin: stores/handoff.py _charge_tokens
function handoff.charge_tokens(claim, r)
  local tokens = r.used ~= '' and record.amounts(r.used).tokens or 0
  if tokens > 0 and pool.waiting > 0 then
    local use = session.project(claim.project)
    use.turn = max(use.turn, pool.turn) + tokens / TOKENS_OF_A_CALL / use.weight
    session.put_project(use)
  end
end

-- What ended well and was not said in words comes by the thousand, and is not worth a fact.
-- twin: stores/handoff.py _record_end
function handoff.record_end(claim, r, held_s)
  if r.words ~= '' or (r.outcome ~= 'finished' and held_s >= FACT_FROM_S) then
    local how = r.words ~= '' and r.words or r.outcome
    session.record_fact(claim, 'ended', how .. ' (after ' .. verdicts.span_words(held_s) .. ')')
  end
end

-- True if the plan has to hear of it before the slots are handed on.
-- twin: stores/handoff.py note_end
function handoff.note_end(claim, r)
  session.read_rest()
  handoff.settle_windows(claim, r)
  handoff.charge_tokens(claim, r)
  local was_full = session.is_full()
  local held_s = max(0, now - claim.granted_at)
  handoff.record_end(claim, r, held_s)
  if not r.rejected and (was_full or held_s >= 1 or claim.id % HOLD_SAMPLE == 0) then session.note_hold(held_s) end
  local oks = r.oks or (r.outcome == 'finished' and not r.rejected and 1 or 0)
  local full = claim.priority > 0 and pool.cap or max(1, pool.cap - pool.reserve)
  if claim.unread == '1' and oks > 0 and claim.level >= full then
    -- Only now is it known that it was served when it filled the cap.
    session.put('bound_at', max(pool.bound_at, claim.granted_at))
    session.plan_soon()
  end
  if was_full then
    session.put('bound_oks', pool.bound_oks + oks)
    -- Only a call that was sent after a refusal shows that as much is served again.
    if oks > 0 and pool.work > 0 and claim.level > pool.high and claim.granted_at > pool.refused_at then
      session.put('high', claim.level)
    end
    session.plan_soon()
  end
  local id = text(claim.id)
  local throttled, was_trial = r.outcome == 'throttled', pool.trial_id == claim.id
  if throttled then session.add_to_inbox('throttled\t' .. id .. '\t' .. call('HGET', PREFIX .. 'claims', id)) end
  if was_trial then session.add_to_inbox('trial ended\t' .. r.outcome) end
  return throttled or was_trial
end
