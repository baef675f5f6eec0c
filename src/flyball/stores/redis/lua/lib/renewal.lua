-- One renewal of a share lease. Mirrors core/share_lease/renewal.py and the first half of stores/shares.py name by name.
local budget, renewal = nil, {}

-- twin: stores/redis/records.py renewal_line
function renewal.parse(line)
  local r = {}
  r.node, r.incarnation, r.seq, r.holds, r.in_flight, r.wants, r.weight, r.beyond, r.leaving, r.successes,
    r.throttles, r.overloads, r.peak, r.hold_s, r.refused_age_s, r.estimate, r.mailbox =
    match(line, '^' .. string.rep('([^\t]*)\t', 16) .. '(.*)$')
  r.name, r.beyond, r.leaving = r.node .. '\31' .. r.incarnation, tonumber(r.beyond), r.leaving == '1'
  r.seq, r.holds, r.wants = tonumber(r.seq), tonumber(r.holds), tonumber(r.wants)
  r.peak = max(tonumber(r.peak), tonumber(r.in_flight))
  return r
end

-- -- the budget ----------------------------------------------------------------------------------------------

-- How much of the pool share leases may hold now.
-- twin: stores/shares.py cap_for
function renewal.cap()
  local paused_s = pool.closed_until and pool.closed_until - now or 0
  if pool.phase == 'open' or paused_s > (budget.cap ~= 0 and budget.beat_s or 0) then return 0 end
  if pool.phase == 'trial' then return (not pool.trial_id or pool.trial_id == TRIAL_ID) and 1 or 0 end
  local cap = budget.estimate and min(pool.cap, max(1, math.floor(budget.estimate))) or pool.cap
  local single, low = pool.in_use - budget.held, pool.low_in_use - budget.held
  local in_line = max(0, min(pool.waiting, math.floor(cap / 2) - single))
  local reserve = min(pool.reserve, max(0, cap - 1))
  return max(0, min(cap - single - in_line, cap - reserve - low))
end

-- The budget as it stands now, made where there was none. False where the plan has not said the terms yet.
-- twin: stores/shares.py _current_budget
-- twin: core/share_lease/renewal.py enter_epoch
-- twin: stores/redis/records.py parse_budget
function renewal.read_budget()
  local v = call('HMGET', PREFIX .. 'pool', 'beat_s', 'ttl_s', 'lease_s', 'eager_s', 'bound_oks', 'hold_mean_s',
    'pot:held', 'pot:cap', 'pot:nodes', 'pot:learning_until', 'pot:epoch', 'pot:busy', 'pot:active', 'pot:estimate',
    'pot:dirty', 'pot:planned_at', 'pot:until')
  if not v[1] then return false end
  local epoch = shares.epoch()
  pool.bound_oks, pool.hold_mean_s = tonumber(v[5]), tonumber(v[6])
  budget = {beat_s = tonumber(v[1]), ttl_s = v[2], lease_s = tonumber(v[3]), eager_s = tonumber(v[4])}
  if v[7] then
    budget.held, budget.cap, budget.nodes, budget.learning_until = tonumber(v[7]), tonumber(v[8]), tonumber(v[9]), tonumber(v[10])
    budget.busy, budget.active, budget.estimate = tonumber(v[12]), tonumber(v[13]), tonumber(v[14])
    budget.dirty, budget.planned_at, budget['until'] = tonumber(v[15]), tonumber(v[16]), tonumber(v[17])
    if v[11] ~= epoch then
      shares.life_since(epoch)
      renewal.put('learning_until', now + budget.lease_s)
      renewal.put('epoch', epoch)
    end
  else
    budget.cap, budget.held, budget.nodes, budget.busy, budget.active, budget.dirty = 0, 0, 0, 0, 0, 0
    budget.learning_until, budget.planned_at = shares.life_since(epoch) + budget.lease_s, -math.huge
    for field, value in pairs({
      cap = 0, held = 0, nodes = 0, busy = 0, active = 0, dirty = 0, epoch = epoch,
      learning_until = budget.learning_until, planned_at = budget.planned_at, ['until'] = math.huge,
    }) do
      renewal.put(field, value)
    end
    session.put('pot:estimate', '')
  end
  local cap = renewal.cap()
  if cap ~= budget.cap then
    renewal.put('cap', cap)
    -- Counted, so that a plan which is being made takes away only what it has seen.
    renewal.put('dirty', budget.dirty + 1)
  end
  return true
end

-- no twin: a field of the budget is a field of its pool; Python replaces the whole budget
function renewal.put(field, value)
  budget[field] = value
  session.put('pot:' .. field, value)
end

-- -- the rule ---------------------------------------------------------------------------------------------

-- twin: core/share_lease/renewal.py _first_row
function renewal.first_row(r)
  local fair = math.floor(budget.cap / (budget.nodes + 1))
  return {
    name = r.name, slots = 0, owed = 0, target = max(fair, min(1, budget.cap)), wants = 0, peak = 0, draining = false,
    since = now, expires_at = 0, successes = r.successes, throttles = r.throttles, overloads = r.overloads,
  }
end

-- The lease after ``r``, from ``row`` as it was. Returns the target it is told.
-- twin: core/share_lease/renewal.py renew, _owed_slots, _present_target
function renewal.apply(row, r)
  local s = {name = r.name, seq = r.seq, target = row.target, wants = r.wants, peak = r.peak}
  s.draining, s.mailbox = row.draining or r.leaving, r.mailbox
  local learning, others = now < budget.learning_until, budget.held - row.slots
  local target = s.draining and 0 or row.target
  -- While others may still be unheard no holder is asked for what could not be given to another.
  if not s.draining and learning and others + r.holds <= budget.cap then target = max(target, r.holds) end
  local growth = learning and 0 or max(0, min(target - r.holds, budget.cap - others - r.holds))
  s.slots = r.holds + growth
  if learning then
    s.owed = min(max(row.owed, r.beyond), s.slots)
  else
    s.owed = min(row.owed + max(0, r.holds - row.slots), max(0, others + s.slots - budget.cap), s.slots)
  end
  s.since = (s.slots > 0) ~= (row.slots > 0) and now or row.since
  -- A TTL that was shortened meanwhile must not overtake the one a holder still counts on.
  s.expires_at = max(row.expires_at, now + budget.lease_s)
  return s, target
end

-- twin: stores/redis/records.py _parse_share
function renewal.write(s, r)
  call('HSET', PREFIX .. 'shares', s.name, table.concat({
    r.node, r.incarnation, s.seq, s.slots, s.owed, r.in_flight, s.wants, r.weight, s.draining and 1 or 0,
    text(s.since), text(s.expires_at), r.successes, r.throttles, r.overloads, s.peak, r.estimate, s.mailbox,
  }, '\t'))
end

-- twin: stores/shares.py _apply_renewal
function renewal.count(row, s, known)
  local change = s.slots - row.slots
  if change ~= 0 then
    session.put('in_use', pool.in_use + change)
    session.put('low_in_use', pool.low_in_use + change)
    renewal.put('held', budget.held + change)
  end
  local nodes = (s.draining and 0 or 1) - ((known and not row.draining) and 1 or 0)
  if nodes ~= 0 then renewal.put('nodes', budget.nodes + nodes) end
  local busy = shares.busy(s) - (known and shares.busy(row) or 0)
  if busy ~= 0 then renewal.put('busy', budget.busy + busy) end
  local active = (shares.is_active(s) and 1 or 0) - ((known and shares.is_active(row)) and 1 or 0)
  if active ~= 0 then renewal.put('active', budget.active + active) end
  local cap = renewal.cap()
  if cap ~= budget.cap then renewal.put('cap', cap) end
end

-- Those who wait for what was given up; no more than could be served.
-- twin: stores/shares.py _apply_renewal
function renewal.tell_short(s)
  local room = budget.cap - budget.held
  if room <= 0 then return end
  for _, name in ipairs(call('ZRANGE', PREFIX .. 'short', 0, room)) do
    if name ~= s.name and room > 0 then
      room = room - 1
      shares.notice(match(call('HGET', PREFIX .. 'shares', name), '([^\t]*)$'))
    end
  end
end

-- Take ``r`` in: the lease as it was, as it is now, and the target it is told.
-- twin: stores/shares.py _apply_renewal
function renewal.take(row, r)
  local before = row or renewal.first_row(r)
  local s, target = renewal.apply(before, r)
  local was_short, is_short = row and shares.is_short(row), shares.is_short(s)
  if not row then call('HSET', PREFIX .. 'targets', s.name, s.target) end
  if is_short and not was_short then call('ZADD', PREFIX .. 'short', 0, s.name) end
  if was_short and not is_short then call('ZREM', PREFIX .. 'short', s.name) end
  renewal.write(s, r)
  renewal.count(before, s, row ~= nil)
  if s.slots < before.slots then renewal.tell_short(s) end
  return before, s, target
end

-- May who should get how much have changed?
-- twin: core/share_lease/renewal.py _renewed_share
function renewal.replans(row, s, known)
  return not known or s.draining ~= row.draining or (row.wants > row.slots) ~= (s.wants > s.slots) or row.since ~= s.since
    or (s.draining and s.slots < row.slots)
end

-- Not too often; but a plan that was made in this very step has not heard us.
-- twin: stores/shares.py _is_plan_due
-- twin: core/share_lease/timing.py ShareTiming.plan_every_s
function renewal.due(planned)
  local every_s = max(budget.eager_s, PLAN_PER_NODE_S * budget.nodes)
  return budget.dirty > 0 and (planned or now <= budget.planned_at or now >= budget.planned_at + every_s)
    and not shares.being_divided()
end

-- -- what the controller hears ----------------------------------------------------------------------------

-- True if the plan has to hear of it.
-- twin: stores/shares.py _fold_news
function renewal.feed(before, r)
  local oks, throttles = r.successes - before.successes, r.throttles - before.throttles
  local overloads = r.overloads - before.overloads
  local trial = pool.phase == 'trial' and call('HGET', PREFIX .. 'pool', 'trial_name') == r.node
  if pool.in_use - budget.held + (budget.active > 0 and budget.busy or 0) >= pool.cap then
    session.put('bound_at', now)
    if oks > 0 then session.put('bound_oks', pool.bound_oks + oks) end
    session.plan_soon()
  end
  if oks > 0 and tonumber(r.hold_s) > 0 then session.note_hold(tonumber(r.hold_s)) end
  local event = '\t' .. r.refused_age_s .. '\t' .. r.node
  if throttles > 0 then session.add_to_inbox('refused\tthrottled\t' .. text(throttles) .. event) end
  if overloads > 0 then session.add_to_inbox('refused\toverloaded\t' .. text(overloads) .. event) end
  local passed = trial and oks > 0 and throttles == 0
  if passed then session.add_to_inbox('trial ended\tfinished') end
  return throttles > 0 or overloads > 0 or passed
end

-- Where there is work for it, and nothing else runs beside it: what runs from now on is the trial.
-- twin: stores/shares.py _begin_trial
function renewal.begin_trial(r, gate)
  if gate == 0 or r.wants == 0 or tonumber(r.in_flight) > gate then return end
  session.put('trial_id', TRIAL_ID)
  session.put('trial_at', now)
  session.put('trial_project', '')
  session.put('trial_name', r.node)
  session.put('valid_until', min(pool.valid_until, now))
  session.record_fact({project = '', name = r.node, pid = '0'}, 'trial', 'admitted as the trial')
end

-- twin: core/share_lease/renewal.py renew
-- twin: stores/redis/records.py parse_reply
function renewal.reply(s, target)
  local learning = now < budget.learning_until and '1' or ''
  local gate = min(target, s.slots - s.owed)
  return format('%d\t\t%d\t%d\t%d\t%s\t%s', s.seq, s.slots, gate, target, budget.ttl_s, learning)
end

-- no twin: reads a field of its own reply, which went with a pause
function renewal.gate_in(reply) return tonumber(match(reply, '^%d+\t\t%d+\t(%-?%d+)')) end

-- It was not newer than one seen before, and changes nothing.
-- twin: core/share_lease/renewal.py renew
-- twin: stores/redis/records.py parse_reply
function renewal.stale_reply(r)
  session.moved = {}
  return session.finish(format('%d\t1\t0\t0\t0\t0\t', r.seq))
end
