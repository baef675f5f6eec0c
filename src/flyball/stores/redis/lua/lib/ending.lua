-- A lease ends: what that teaches the meters, before its slots are handed on.

-- twin: stores/handoff.py _settle_windows
function handout.settle_windows(claim, r)
  local sent_at = claim.granted_at or now
  if r.buckets ~= '' then
    local mark = record.amounts(claim.marks_text)
    local windows = window.learn(pool.windows or {}, window.buckets(r.buckets), sent_at, mark, now)
    pool.windows = #windows > 0 and windows or nil
    desk.moved.windows = true
    desk.put('plain', false)
  end
  if r.rejected and pool.work > 0 then
    -- Some of those refused were sent before counting began; it must not end with them.
    desk.put('work', max(1, pool.work - 1))
    desk.put('work_tokens', max(0, pool.work_tokens - (claims.cost(claim).tokens or 0)))
  end
  if pool.windows and (r.rejected or r.used ~= '') then
    local mark = record.amounts(claim.marks_text)
    desk.moved.windows = true
    if r.rejected then
      window.refund(pool.windows, claims.cost(claim), sent_at, mark, now)
    else
      window.settle(pool.windows, claims.cost(claim), record.amounts(r.used), sent_at, mark, now)
    end
  end
end

-- What ended well and was not said in words comes by the thousand, and nobody asks about it.
-- twin: stores/handoff.py _tell_end
function handout.tell_end(claim, r, held_s)
  if r.words ~= '' or (r.outcome ~= 'finished' and held_s >= TELLING_S) then
    local how = r.words ~= '' and r.words or r.outcome
    desk.tell(claim, 'ended', how .. ' (after ' .. answers.span_words(held_s) .. ')')
  end
end

-- True if the plan has to hear of it before the slots are handed on.
-- twin: stores/handoff.py note_end, _sent_since_refusal
function handout.note_end(claim, r)
  desk.rest()
  handout.settle_windows(claim, r)
  local was_full = pool.in_use >= pool.cap
  local held_s = max(0, now - claim.granted_at)
  handout.tell_end(claim, r, held_s)
  if not r.rejected and (was_full or held_s >= 1 or claim.id % HOLD_SAMPLE == 0) then desk.note_hold(held_s) end
  local oks = r.oks or (r.outcome == 'finished' and not r.rejected and 1 or 0)
  if claim.unread == '1' and oks > 0 and claim.level >= pool.cap then
    -- Only now is it known that it was served when it filled the cap.
    desk.put('bound_at', max(pool.bound_at, claim.granted_at))
    desk.fold_soon()
  end
  if was_full then
    desk.put('bound_oks', pool.bound_oks + oks)
    -- Only a call that was sent after a refusal shows that as much is served again.
    if oks > 0 and pool.work > 0 and claim.level > pool.high and claim.granted_at > pool.refused_at then
      desk.put('high', claim.level)
    end
    desk.fold_soon()
  end
  local id = text(claim.id)
  local throttled, was_trial = r.outcome == 'throttled', pool.trial_id == claim.id
  if throttled then desk.inform('throttled\t' .. id .. '\t' .. call('HGET', PREFIX .. 'claims', id)) end
  if was_trial then desk.inform('trial ended\t' .. r.outcome) end
  return throttled or was_trial
end
