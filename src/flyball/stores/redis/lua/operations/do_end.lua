-- End a lease or give up an ask; what it held goes to the next in line in the same step.
-- twin: stores/operations.py StoreOperations._end_in
local r = {}
r.id, r.outcome, r.oks, r.rejected, r.used, r.buckets, r.asked_at, r.words =
  match(ARGV[2], '^([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$')
r.id, r.oks, r.rejected = tonumber(r.id), tonumber(r.oks), r.rejected == '1'
local stage, rest = match(ARGV[3] or '', '^(%a*) ?(.*)$')
local claim = claims.find(r.id, r.asked_at)
if stage == '' and not claim then return 'gone' end
local unready = session.open(claim and claim.project)
if unready then return unready end

if stage == '' then
  if claim.slots == 0 then
    if r.outcome == 'abandoned' then
      session.record_fact(claim, 'gave up', 'gave up after resting ' .. verdicts.span_words(now - claim.asked_at))
    end
    claims.remove(claim)
    return session.finish('ended')
  end
  local frees = claim.granted_at and handoff.room() + claim.slots or 0
  -- Before anything has changed: a caller that dies now leaves the slot with its lease, not free and unnoticed.
  if frees > 0 and pool.waiting > 0 and handoff.ask_stopped(frees) then return session.ask_for_plan('') end
  if not claim.granted_at then
    local waited_s = now - claim.asked_at
    if waited_s >= FACT_FROM_S then
      local waited = verdicts.span_words(waited_s)
      session.record_fact(claim, 'gave up', 'gave up after waiting ' .. waited .. ' (' .. claim.why .. ')')
    end
  elseif claim.ended == '' and handoff.note_end(claim, r) then
    -- Said again after a lost answer, it must not count twice.
    claim.ended = '1'
    claims.put(claim)
    return session.ask_for_plan('ended')
  end
  stage = 'ended'
end
if stage == 'ended' and claim then
  if handoff.take_back(claim) then
    session.add_to_inbox('left')
    return session.ask_for_plan('serve ' .. text(r.id))
  end
end
local unplanned = handoff.hand_off(rest)
if unplanned then return session.ask_for_plan('serve ' .. unplanned) end
return session.finish('ended')
