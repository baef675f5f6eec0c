-- How an ask stands; looking with authority also hands out what time has freed.
-- twin: stores/operations.py StoreOperations.look, StoreOperations._granted_already
-- twin: stores/verdicts.py standing
local id, asked_at, advance = match(ARGV[2], '^([^\t]*)\t([^\t]*)\t(.*)$')
id = tonumber(id)
local stage, rest = match(ARGV[3] or '', '^(%a*) ?(.*)$')
local claim = claims.of(id, asked_at)
claims.looking = id

local function standing(found)
  if found.granted_at then return granted_text(found), false end
  local verdict = answers.never(found)
  if verdict then return answers.text(verdict), true end
  return answers.text(answers.waiting(found, 'parked', answers.place_of(found))), false
end

if advance ~= '1' then
  if not claim then return 'gone' end
  desk.read()
  -- Whoever has no process is known by its time alone: looking confirms nobody.
  local afar = claim.pid == '0'
  if claim.granted_at and (afar or not claim.expires_at) then return granted_text(claim) end
  if claim.expires_at and not afar then return 'write' end
  -- What a new plan would say can be seen without making one.
  if desk.stale() then return 'project' end
  return (standing(claim))
end

if stage == '' and not claim then return 'gone' end
local unready = desk.open()
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
  local unplanned = handout.hand_out(rest)
  if unplanned then return desk.state('serve ' .. unplanned) end
  claim.gone = true
  claim, stage = claims.of(id) or claim, ''
end
if stage == 'left' then
  local unplanned = handout.hand_out(rest)
  if unplanned then return desk.state('left ' .. unplanned) end
  return desk.done('')
end
local verdict, hopeless = standing(claim)
if hopeless then
  -- The limits were lowered below what it asks for: it must not keep its line waiting.
  if handout.take_back(claim, claim.gone) then
    desk.inform('left')
    return desk.state('left ' .. text(id), verdict)
  end
  local unplanned = handout.hand_out('')
  if unplanned then return desk.state('left ' .. unplanned, verdict) end
end
return desk.done(verdict)
