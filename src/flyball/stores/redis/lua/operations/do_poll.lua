-- How an ask stands; looking with authority also hands out what time has freed.
-- twin: stores/operations.py StoreOperations.poll, StoreOperations._find_granted
-- twin: stores/verdicts.py verdict_for_claim
local id, asked_at, advance = match(ARGV[2], '^([^\t]*)\t([^\t]*)\t(.*)$')
id = tonumber(id)
local stage, rest = match(ARGV[3] or '', '^(%a*) ?(.*)$')
local claim = claims.find(id, asked_at)
claims.polling = id

local function verdict_for_claim(found)
  if found.granted_at then return granted_line(found), false end
  local verdict = verdicts.refusal_if_impossible(found)
  if verdict then return verdicts.line(verdict), true end
  return verdicts.line(verdicts.waiting_verdict(found, 'parked', verdicts.queue_position(found))), false
end

if advance ~= '1' then
  if not claim then return 'gone' end
  session.read()
  -- A remote ask has no process and is known by its time alone: polling confirms nothing.
  local is_remote = claim.pid == '0'
  if claim.granted_at and (is_remote or not claim.expires_at) then return granted_line(claim) end
  if claim.expires_at and not is_remote then return 'write' end
  -- What a new plan would say can be seen without making one.
  if session.is_stale() then return 'project' end
  return (verdict_for_claim(claim))
end

if stage == '' and not claim then return 'gone' end
local unready = session.open()
if unready then return unready end
if stage == '' then
  if not claim.granted_at then
    stage = 'serve'
  elseif claim.expires_at and claim.pid ~= '0' then
    call('ZREM', PREFIX .. 'expiring', text(id))
    claim.expires_at = nil
    claims.put(claim)
  end
end
if stage == 'serve' then
  local unplanned = handoff.hand_off(rest)
  if unplanned then return session.ask_for_plan('serve ' .. unplanned) end
  claim.gone = true
  claim, stage = claims.find(id) or claim, ''
end
if stage == 'left' then
  local unplanned = handoff.hand_off(rest)
  if unplanned then return session.ask_for_plan('left ' .. unplanned) end
  return session.finish('')
end
local verdict, hopeless = verdict_for_claim(claim)
if hopeless then
  -- The limits were lowered below what it asks for: it must not keep its line waiting.
  if handoff.take_back(claim, claim.gone) then
    session.add_to_inbox('left')
    return session.ask_for_plan('left ' .. text(id), verdict)
  end
  local unplanned = handoff.hand_off('')
  if unplanned then return session.ask_for_plan('left ' .. unplanned, verdict) end
end
return session.finish(verdict)
