-- Budgets over time. Mirrors core/pool/rate_window.py function by function; the reasons are there.
local window = {}

-- twin: stores/redis/records.py parse_windows, _window
function window.parse(lines)
  local found, n = {}, 0
  for line in string.gmatch(lines, '[^\n]+') do
    local f = record.fields(line)
    n = n + 1
    found[n] = {
      name = f[1], limit = tonumber(f[2]), refill_per_s = tonumber(f[3]), level = tonumber(f[4]),
      at = tonumber(f[5]), source = f[6], spent = tonumber(f[7]), seen_sent_at = tonumber(f[8]),
      seen_level = tonumber(f[9]), seen_spent = tonumber(f[10]), others_per_s = tonumber(f[11]),
    }
  end
  return found
end

-- twin: stores/redis/records.py windows_text
function window.lines(windows)
  local lines = {}
  for i, w in ipairs(windows) do
    lines[i] = table.concat({
      w.name, text(w.limit), text(w.refill_per_s), text(w.level), text(w.at), w.source, text(w.spent),
      text(w.seen_sent_at), text(w.seen_level), text(w.seen_spent), text(w.others_per_s),
    }, '\t')
  end
  return table.concat(lines, '\n')
end

-- The windows as planned, with what was spent of each while the plan was made.
-- no twin: only here do grants and ends go on while a plan is made
function window.merged(is, was, planned)
  local before, present = {}, {}
  for _, w in ipairs(window.parse(was)) do before[w.source .. w.name] = w end
  for _, w in ipairs(window.parse(is)) do present[w.source .. w.name] = w end
  local windows = window.parse(planned)
  for _, w in ipairs(windows) do
    local old, new = before[w.source .. w.name], present[w.source .. w.name]
    if old and new then
      local spent = new.spent - old.spent
      w.level, w.spent = min(w.limit, w.level - spent), w.spent + spent
    end
  end
  return window.lines(windows)
end

-- twin: core/pool/rate_window.py Window.net_per_s
function window.net_per_s(w)
  return max(w.refill_per_s * LEAST_NET, w.refill_per_s - w.others_per_s)
end

-- twin: core/pool/rate_window.py Window.level_at
function window.level_at(w, now)
  return min(w.limit, w.level + window.net_per_s(w) * max(0, now - w.at))
end

-- twin: core/pool/rate_window.py Window.room_at, Window.reserve
function window.room_at(w, cost, now)
  local reserve = w.source == 'reported' and w.limit * LEVEL_RESERVE or 0
  local missing = min(cost + reserve, w.limit) - window.level_at(w, now)
  if missing <= 1e-9 then return now end
  if w.refill_per_s > 0 then return now + missing / window.net_per_s(w) end
  return math.huge
end

-- twin: core/pool/rate_window.py Window.after_spending
function window.taken(w, cost, now)
  w.level, w.at, w.spent = min(w.limit, window.level_at(w, now) - cost), now, w.spent + cost
end

-- twin: core/pool/rate_window.py cost_in
function window.cost_in(w, cost)
  return cost[w.name] or (w.name == 'requests' and 1 or 0)
end

-- twin: core/pool/rate_window.py take
function window.take(windows, cost, now)
  for _, w in ipairs(windows) do window.taken(w, window.cost_in(w, cost), now) end
end

-- twin: core/pool/rate_window.py marks
function window.marks(windows)
  local found = {}
  for _, w in ipairs(windows) do
    if w.source == 'reported' or not found[w.name] then found[w.name] = w.spent end
  end
  return found
end
