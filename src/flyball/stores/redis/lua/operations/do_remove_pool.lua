-- Forget a pool that is not in use.
-- ARGV[2]: "remove"; or "check" whether it could be, and the claims that will have ended by then
-- twin: stores/admin_operations.py AdminOperations.remove_pool
session.read()
if not pool then return 'none' end
local words, leases, waiting, shared = {}, 0, 0, 0
for word in string.gmatch(ARGV[2], '[^\t]+') do words[word] = true end
for _, id in ipairs(call('HKEYS', PREFIX .. 'claims')) do
  if not words[id] then
    if claims.find(tonumber(id)).granted_at then leases = leases + 1 else waiting = waiting + 1 end
  end
end
for _, name in ipairs(call('HKEYS', PREFIX .. 'shares')) do
  if shares.find(name).expires_at > now then shared = shared + 1 end
end
if leases + waiting + shared > 0 then return table.concat({'in use', leases, waiting, shared}, '\t') end
if words.check then return 'free' end
for _, key in ipairs({
  'pool', 'inbox', 'demands', 'claims', 'held', 'resting', 'waiting', 'lines', 'expiring', 'hosts', 'receipts',
  'receipts-until', 'receipt-of', 'shares', 'targets', 'short', 'ask-facts', 'pool-facts',
}) do call('DEL', PREFIX .. key) end
return 'removed'
