-- Leaving, and standing in line.

-- What ordering the line needs, so that it can be read at once.
-- no twin: a key of an index that only Redis has
function claims.waiting_member(claim)
  return table.concat({
    text(claim.id), claim.project, text(claim.priority), text(claim.slots), text(claim.asked_at),
  }, '\t')
end

-- Lines are ordered by project, then priority; within one the oldest is first.
-- twin: stores/memory_rows.py MemoryRows._line
function claims.line(claim) return claim.project .. '\0' .. format('%04d', claim.priority + 1000) end

-- no twin: a key of an index that only Redis has
function claims.line_member(claim) return claims.line(claim) .. '\0' .. format('%016d', claim.id) end

-- twin: stores/memory_rows.py MemoryRows._enter
function claims.enter_line(claim)
  call('ZADD', PREFIX .. 'waiting', text(claim.id), claims.waiting_member(claim))
  call('ZADD', PREFIX .. 'lines', 0, claims.line_member(claim))
  claims.count(claim, 0, 1)
end

-- twin: stores/memory_rows.py MemoryRows.remove
function claims.leave_line(claim)
  call('ZREM', PREFIX .. 'waiting', claims.waiting_member(claim))
  call('ZREM', PREFIX .. 'lines', claims.line_member(claim))
  claims.count(claim, 0, -1)
end

-- twin: stores/memory_rows.py MemoryRows.remove
function claims.remove(claim)
  local id = text(claim.id)
  call('HDEL', PREFIX .. 'claims', id)
  if not claim.granted_at then
    claims.leave_line(claim)
  elseif claim.slots == 0 then
    call('ZREM', PREFIX .. 'resting', id)
  else
    call('ZREM', PREFIX .. 'held', claims.held_member(claim))
    claims.count(claim, -claim.slots, 0)
  end
  if claim.expires_at then call('ZREM', PREFIX .. 'expiring', id) end
end

-- no twin: a line that script_runner.py makes a WakeUp of, and a word on a channel
function claims.wake(claim)
  -- A waiter that polls just now need not be told to.
  if claim.id == claims.polling then return end
  session.add_effect(table.concat({
    'w', claim.mailbox, text(claim.id), claim.host, claim.boot, claim.pidns, claim.pid, claim.start,
    claim.granted_at and '1' or '',
  }, '\t'))
  session.publish(claim.mailbox, ' ' .. text(claim.id))
end

-- no twin: reads an index that only Redis has
function claims.head_from(bound, prefix)
  local upper = prefix and '(' .. prefix .. '\255' or '+'
  local found = call('ZRANGEBYLEX', PREFIX .. 'lines', bound, upper, 'LIMIT', 0, 1)[1]
  if not found then return nil end
  return tonumber(match(found, '(%d+)$')), match(found, '^(.*)%z%d+$')
end

-- The oldest of one line; of those behind ``after``, where one is named.
-- twin: stores/memory_rows.py MemoryRows.line_head
function claims.line_head(line, after)
  local bound = after and '(' .. line .. '\0' .. format('%016d', after.id) or '[' .. line .. '\0'
  local id = claims.head_from(bound, line .. '\0')
  return id and claims.find(id)
end

-- twin: stores/handoff.py _behind
function claims.behind(claim) return claims.line_head(claims.line(claim), claim) end

-- The oldest of each line, by project and priority.
-- twin: stores/memory_rows.py MemoryRows.line_heads
function claims.line_heads()
  local heads, bound = {}, '-'
  while true do
    local id, line = claims.head_from(bound)
    if not id then return heads end
    heads[#heads + 1] = claims.find(id)
    bound = '(' .. line .. '\0\255'
  end
end

-- The oldest lease of a project; of them all where none is named.
-- twin: stores/memory_rows.py MemoryRows.oldest_lease
function claims.oldest_lease(project)
  local bound, upper, oldest = '-', '+', nil
  if project then bound, upper = '[' .. project .. '\0', '(' .. project .. '\0\255' end
  while true do
    local found = call('ZRANGEBYLEX', PREFIX .. 'held', bound, upper, 'LIMIT', 0, 1)[1]
    if not found then return oldest and claims.find(oldest) end
    local of, id = match(found, '^(.*)%z(%d+)$')
    oldest = min(oldest or math.huge, tonumber(id))
    bound = '(' .. of .. '\0\255'
  end
end
