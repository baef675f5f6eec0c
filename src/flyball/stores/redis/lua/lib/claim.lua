-- Asks and leases. A count changes only here, in the step that adds, grants or removes a claim.
local claims = {}

-- The claim of this id; nil if there is none, or another one than was asked for at ``asked_at``.
-- twin: stores/redis/records.py parse_claim
function claims.find(id, asked_at)
  local line = call('HGET', PREFIX .. 'claims', text(id))
  if not line then return nil end
  local c = {id = id}
  c.project, c.name, c.host, c.boot, c.pidns, c.pid, c.start, c.slots, c.priority, c.model, c.mailbox,
    c.launcher_pid, c.asked_at, c.granted_at, c.expires_at, c.why, c.level, c.cost_text, c.marks_text, c.tag,
    c.ended, c.unread = match(line, '^' .. string.rep('([^\t]*)\t', 20) .. '([^\t]*)\t?(.*)$')
  c.slots, c.priority, c.level = tonumber(c.slots), tonumber(c.priority), tonumber(c.level)
  c.asked_at, c.granted_at, c.expires_at = tonumber(c.asked_at), tonumber(c.granted_at), tonumber(c.expires_at)
  if asked_at and asked_at ~= '' and tonumber(asked_at) ~= c.asked_at then return nil end
  return c
end

-- twin: stores/redis/records.py parse_amounts
function claims.cost(claim)
  if not claim.cost then claim.cost = record.amounts(claim.cost_text) end
  return claim.cost
end

-- The first twelve fields of a claim: what never changes while it lives, unless it is rebound.
-- twin: stores/redis/records.py ask_line
function claims.ask_line(c)
  return table.concat({
    c.project, c.name, c.host, c.boot, c.pidns, c.pid, c.start, text(c.slots), text(c.priority), c.model,
    c.mailbox, c.launcher_pid,
  }, '\t')
end

-- twin: stores/redis/records.py parse_claim
function claims.put(c)
  call('HSET', PREFIX .. 'claims', text(c.id), table.concat({
    c.who or claims.ask_line(c), text(c.asked_at), text(c.granted_at), text(c.expires_at), c.why, text(c.level),
    c.cost_text, c.marks_text, c.tag, c.ended, c.unread == '1' and '1' or nil,
  }, '\t'))
end

-- twin: stores/pool_session.py PoolSession.count
-- twin: stores/memory_rows.py MemoryRows._count
function claims.count(claim, slots, waiting)
  local use = session.project(claim.project)
  use.in_use, use.waiting = use.in_use + slots, use.waiting + waiting
  session.moved_uses[claim.project] = true
  if slots ~= 0 then
    session.put('in_use', pool.in_use + slots)
    if claim.priority <= 0 then session.put('low_in_use', pool.low_in_use + slots) end
  end
  if waiting ~= 0 then session.put('waiting', pool.waiting + waiting) end
end

-- Leases are ordered by project, then age.
-- no twin: a key of an index that only Redis has
function claims.held_member(claim) return claim.project .. '\0' .. format('%016d', claim.id) end

-- twin: stores/memory_rows.py MemoryRows._enter
function claims.enter_held(claim)
  local id = text(claim.id)
  if claim.slots == 0 then
    call('ZADD', PREFIX .. 'resting', id, id)
  else
    call('ZADD', PREFIX .. 'held', 0, claims.held_member(claim))
    claims.count(claim, claim.slots, 0)
  end
  if claim.expires_at then call('ZADD', PREFIX .. 'expiring', text(claim.expires_at), id) end
end

-- twin: stores/pool_session.py PoolSession.take_id
function claims.take_id()
  session.put('next_id', pool.next_id + 1)
  return pool.next_id - 1
end
