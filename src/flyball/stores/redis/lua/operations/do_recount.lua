-- Set every count to what claims and share leases say.
-- twin: stores/admin_operations.py AdminOperations.recount
-- twin: stores/recount.py recount_pool, _recount_budget, write_counts
local stage, rest = match(ARGV[3] or '', '^(%a*) ?(.*)$')
local unready = session.open()
if unready then return unready end
if stage == '' then
  local total, found = {in_use = 0, low_in_use = 0, waiting = 0}, {}
  for _, id in ipairs(call('HKEYS', PREFIX .. 'claims')) do
    local claim = claims.find(tonumber(id))
    local use = found[claim.project] or {in_use = 0, waiting = 0}
    found[claim.project] = use
    if claim.granted_at then
      total.in_use, use.in_use = total.in_use + claim.slots, use.in_use + claim.slots
      if claim.priority <= 0 then total.low_in_use = total.low_in_use + claim.slots end
    else
      total.waiting, use.waiting = total.waiting + 1, use.waiting + 1
    end
  end
  local shared, budget = call('HKEYS', PREFIX .. 'shares'), {held = 0, nodes = 0, busy = 0, active = 0}
  for _, name in ipairs(shared) do
    local s = shares.find(name)
    budget.held, budget.busy = budget.held + s.slots, budget.busy + shares.busy(s)
    budget.nodes, budget.active = budget.nodes + (s.draining and 0 or 1), budget.active + (shares.is_active(s) and 1 or 0)
  end
  total.in_use, total.low_in_use = total.in_use + budget.held, total.low_in_use + budget.held
  if call('HEXISTS', PREFIX .. 'pool', 'pot:held') == 1 then
    for what, number in pairs(budget) do session.put('pot:' .. what, number) end
  end
  for _, field in ipairs(call('HKEYS', PREFIX .. 'pool')) do
    local name = match(field, '^use:(.*)$')
    if name then found[name] = found[name] or {in_use = 0, waiting = 0} end
  end
  for what, number in pairs(total) do session.put(what, number) end
  for name, counts in pairs(found) do
    local use = session.project(name)
    use.in_use, use.waiting = counts.in_use, counts.waiting
    session.put_project(use)
  end
  session.add_to_inbox('refresh')
  return session.ask_for_plan('serve')
end
local unplanned = handoff.hand_off(rest)
if unplanned then return session.ask_for_plan('serve ' .. unplanned) end
return session.finish('counted')
