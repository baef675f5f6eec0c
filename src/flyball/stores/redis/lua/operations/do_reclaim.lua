-- Remove the claims of dead holders, if they still are the holders, leases that were not confirmed, and the
-- demands of the dead. Mirrors StoreOperations.reclaim for one pool.
-- ARGV[2], one to a line: "c", id, why, host, boot, pidns, pid, start; or "d" and a demand
-- twin: stores/operations.py StoreOperations.reclaim, StoreOperations._reclaim_one
local first = ARGV[3] == nil
local index, stage, rest = match(ARGV[3] or '', '^(%d*) ?(%a*) ?(.*)$')
index = tonumber(index) or 1
local dead, dropped = {}, false
for line in string.gmatch(ARGV[2], '[^\n]+') do
  local kind, what = match(line, '^(%a)\t(.*)$')
  if kind == 'c' then
    local id, why, holder = match(what, '^([^\t]*)\t([^\t]*)\t(.*)$')
    dead[#dead + 1] = {id = tonumber(id), why = why, holder = holder}
  else
    dropped = true
    if first then call('HDEL', PREFIX .. 'demands', what) end
  end
end

-- The named claims first, then those not confirmed in time; nil when none is left.
local function next_dead()
  while dead[index] do
    local claim = claims.find(dead[index].id)
    if claim then
      local holder = table.concat({claim.host, claim.boot, claim.pidns, claim.pid, claim.start}, '\t')
      if holder == dead[index].holder then return claim, dead[index].why end
    end
    index = index + 1
  end
  local oldest
  for _, id in ipairs(call('ZRANGEBYSCORE', PREFIX .. 'expiring', '-inf', text(now))) do
    oldest = min(oldest or math.huge, tonumber(id))
  end
  return oldest and claims.find(oldest), ''
end

if first and not dropped and not next_dead() then return 'reclaimed' end
local unready = session.open(nil, nil, text(index))
if unready then return unready end
if stage ~= '' then
  local unplanned = handoff.hand_off(rest)
  if unplanned then return session.ask_for_plan(text(index) .. ' ' .. stage .. ' ' .. unplanned) end
end
if stage ~= 'last' then
  local claim, told = next_dead()
  while claim do
    index, handoff.gone = index + 1, {}
    if claim.slots == 0 then
      claims.remove(claim)
    else
      local unanswered = claim.expires_at and claim.expires_at <= now and claim.pid ~= '0' and told == ''
      local why = unanswered and 'did not answer' or 'is gone'
      local what = claim.granted_at and 'slot taken back' or 'ask dropped'
      if claim.pid == '0' then why = 'it was not extended in time' else why = 'pid ' .. claim.pid .. ' ' .. why end
      if told ~= '' then why = told end
      session.record_fact(claim, unanswered and 'unanswered' or 'reclaimed', what .. ': ' .. why)
      if handoff.take_back(claim) then
        session.add_to_inbox('left')
        return session.ask_for_plan(text(index) .. ' serve ' .. text(claim.id))
      end
      local unplanned = handoff.hand_off('')
      if unplanned then return session.ask_for_plan(text(index) .. ' serve ' .. unplanned) end
    end
    claim, told = next_dead()
  end
  if dropped then
    session.add_to_inbox('refresh')
    return session.ask_for_plan(text(index) .. ' last')
  end
end
return session.finish('reclaimed')
