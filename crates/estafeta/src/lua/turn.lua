-- turn: the one step of a lane. Settles what it handled, then claims what comes next.
-- KEYS   members member inflight ready bell errors ledger [journal]
-- ARGV   incarnation lane cursor n want {index reason}...
--        cursor: messages this lane had settled before; n: how many of its list, from the head, it settles now; the
--        pairs name those among them that failed (index from 0). A journal is written if its key is given.
-- Answer {'turn', cursor, {element...}}: the lane's whole list after the step · {'lost'}
-- Invariant: a settle is applied once, however often it is repeated, and only by the member that holds the messages.
local members, member, inflight, ready, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local errors, ledger, journal = KEYS[6], KEYS[7], KEYS[8]
local cursor, n, want = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local field = 'cursor:' .. ARGV[2]

if not redis.call('ZSCORE', members, ARGV[1]) then
  return { 'lost' }
end
local facts = redis.call('HMGET', member, field, 'number')
local stored = tonumber(facts[1] or 0)
local held = redis.call('LLEN', inflight)
local settles = n > 0 and stored == cursor
if (settles and held < n) or (stored ~= cursor and stored ~= cursor + n) then
  return { 'lost' }
end
redis.call('LLEN', ready)
redis.call('LLEN', bell)
redis.call('LLEN', errors)
redis.call('HLEN', ledger)
if journal then
  redis.call('XLEN', journal)
end

if settles then
  local failed, failed_ids = {}, {}
  local now = #ARGV > 5 and text(now_ms())
  for i = 6, #ARGV, 2 do
    local element = redis.call('LINDEX', inflight, ARGV[i])
    failed[#failed + 1] = error_element(element, now, facts[2], ARGV[i + 1])
    failed_ids[#failed_ids + 1] = string.match(element, '^%d+') or '0'
  end
  if journal then
    local ids = redis.call('LRANGE', inflight, 0, n - 1)
    for i, element in ipairs(ids) do
      ids[i] = string.match(element, '^%d+') or '0'
    end
    redis.call('XADD', journal, '*', 'ids', table.concat(ids, ' '), 'errors', table.concat(failed_ids, ' '),
      'member', facts[2])
  end
  push_all('RPUSH', errors, failed)
  redis.call('LTRIM', inflight, n, -1)
  redis.call('HSET', member, field, text(stored + n))
  redis.call('HINCRBY', ledger, 'done', n - #failed)
  if #failed > 0 then
    redis.call('HINCRBY', ledger, 'failed', #failed)
  end
  stored = stored + n
  held = held - n
end

if held > 0 then
  return { 'turn', stored, redis.call('LRANGE', inflight, 0, -1) }
end
local claimed = want > 0 and redis.call('LPOP', ready, want) or {}
push_all('RPUSH', inflight, claimed)
ring_bell(ready, bell)
return { 'turn', stored, claimed }
