-- A lease begins. Mirrors the first half of stores/handoff.py.
local handoff = {gone = {}}

-- Spend what the ask needs of the windows; how things stand with it.
-- twin: stores/handoff.py _grant
function handoff.spend(ask)
  ask.level, ask.marks_text = pool.in_use + ask.slots, ''
  if pool.work > 0 then
    session.read_rest()
    session.put('work', pool.work + 1)
    session.put('work_tokens', pool.work_tokens + (claims.cost(ask).tokens or 0))
  end
  if pool.windows then
    window.take(pool.windows, claims.cost(ask), now)
    session.moved.windows = true
    ask.marks_text = record.amounts_text(window.marks(pool.windows))
  end
end

-- twin: stores/handoff.py _after_grant
-- twin: core/pool/admission.py next_grant_at
function handoff.after_grant(ask)
  if pool.spacing_s > 0 then
    session.read_rest()
    session.put('next_grant_at', now + pool.spacing_s * (1 + pool.spacing_jitter * (2 * session.chance - 1)))
    session.add_effect('c')
  end
  if session.is_full() then
    if ask.unread ~= '1' then session.put('bound_at', now) end
    session.plan_soon()
  end
  if pool.phase == 'trial' then
    session.put('trial_id', ask.id)
    session.put('trial_at', now)
    session.put('trial_project', ask.project)
    session.put('trial_name', ask.name)
    -- The plan now has a trial to judge, at a time it did not know before.
    session.put('valid_until', now)
    session.record_fact(ask, 'trial', 'admitted as the trial')
  end
end

-- twin: stores/handoff.py grant_new
function handoff.grant_new(ask)
  ask.id = claims.take_id()
  handoff.spend(ask)
  ask.granted_at = now
  claims.put(ask)
  claims.enter_held(ask)
  handoff.after_grant(ask)
end

-- twin: stores/verdicts.py grant_verdict
-- twin: stores/redis/records.py parse_verdict
local function granted_line(claim)
  return format('granted\t%s\t%d\t%d\t%s', text(claim.id), pool.in_use, pool.cap, text(claim.asked_at))
end
