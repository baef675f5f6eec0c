-- A lease begins. Mirrors the first half of stores/handoff.py.
local handout = {gone = {}}

-- Spend what the ask needs of the windows; how things stand with it.
-- twin: stores/handoff.py _grant
function handout.spend(ask)
  ask.level, ask.marks_text = pool.in_use + ask.slots, ''
  if pool.work > 0 then
    desk.rest()
    desk.put('work', pool.work + 1)
    desk.put('work_tokens', pool.work_tokens + (claims.cost(ask).tokens or 0))
  end
  if pool.windows then
    window.take(pool.windows, claims.cost(ask), now)
    desk.moved.windows = true
    ask.marks_text = record.amounts_text(window.marks(pool.windows))
  end
end

-- twin: stores/handoff.py _after_grant
-- twin: core/pool/admission.py next_grant_at
function handout.after_grant(ask)
  if pool.spacing_s > 0 then
    desk.rest()
    desk.put('next_grant_at', now + pool.spacing_s * (1 + pool.spacing_jitter * (2 * desk.chance - 1)))
    desk.say('c')
  end
  if pool.in_use >= pool.cap then
    if ask.unread ~= '1' then desk.put('bound_at', now) end
    desk.fold_soon()
  end
  if pool.phase == 'trial' then
    desk.put('trial_id', ask.id)
    desk.put('trial_at', now)
    desk.put('trial_project', ask.project)
    desk.put('trial_name', ask.name)
    -- The plan now has a trial to judge, at a time it did not know before.
    desk.put('valid_until', now)
    desk.tell(ask, 'trial', 'admitted as the trial')
  end
end

-- twin: stores/handoff.py grant_new
function handout.grant_new(ask)
  ask.id = claims.take_id()
  handout.spend(ask)
  ask.granted_at = now
  claims.put(ask)
  claims.enter_held(ask)
  handout.after_grant(ask)
end

-- twin: stores/verdicts.py granted
-- twin: stores/redis/records.py verdict_of
local function granted_text(claim)
  return format('granted\t%s\t%d\t%d\t%s', text(claim.id), pool.in_use, pool.cap, text(claim.asked_at))
end
