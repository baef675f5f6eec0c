-- Renew a share lease, or begin one. Most renewals end here, before the
-- functions that hand slots out are made.
-- Stages: (none) as it was sent; "fed": the controller has heard of it; "again": so has a plan; "serve".
-- twin: stores/shares.py renew
local stage, rest = match(ARGV[3] or '', '^(%a*) ?(.*)$')
local r, reply = renewal.parse(ARGV[2]), ''
local unready = session.open(nil, stage == '' and shares.being_divided)
if unready then return unready end

if stage ~= 'serve' then
  if not renewal.read_budget() then return session.ask_for_plan(stage) end
  local row, moved, replans = shares.find(r.name), stage == 'fed', false
  local planned = stage == 'again' or session.divided or now == budget.planned_at
  if stage == '' then
    if row and r.seq <= row.seq then return renewal.stale_reply(r) end
    local before, s, told = renewal.take(row, r)
    replans = renewal.replans(before, s, row ~= nil)
    if replans then renewal.put('dirty', budget.dirty + 1) end
    reply, row = renewal.reply(s, told), s
    -- Before it is answered: who tells of a refusal must not go on as if nothing had happened.
    if renewal.feed(before, r) then return session.ask_for_plan('fed ' .. (planned and '1' or '0') .. reply) end
  elseif not row or row.seq ~= r.seq then
    -- A newer one has come meanwhile: no caller waits for the reply to this one.
    return renewal.stale_reply(r)
  elseif stage == 'fed' then
    planned, reply = planned or string.sub(rest, 1, 1) == '1', string.sub(rest, 2)
  end
  if stage ~= 'again' then
    if renewal.due(planned) then return session.ask_for_plan('again', '', false, true) end
    -- Too soon after the last plan: a holder with news comes again, and finds it made or makes it.
    if budget.dirty > 0 and (moved or replans) then
      shares.notice(r.mailbox)
      -- Who has joined and never comes again is unknown to the last plan, so that did not say when to look.
      if row.expires_at < budget['until'] then renewal.put('until', row.expires_at) end
      if budget['until'] < pool.valid_until then session.put('valid_until', budget['until']) end
    end
  end
  if planned then
    -- A plan that has heard it has just given it a target: it need not come again for that.
    r.holds = row.slots
    local _, s, told = renewal.take(row, r)
    reply = renewal.reply(s, told)
  end
  if pool.phase == 'trial' and not pool.trial_id then renewal.begin_trial(r, renewal.gate_in(reply)) end
  rest = ''
  session.write()
end
if pool.waiting == 0 then return session.finish(reply) end
