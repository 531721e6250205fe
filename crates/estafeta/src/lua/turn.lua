-- turn: the one step of a lane. Settles what it handled, then claims what comes next.
-- KEYS   members member inflight ready bell errors ledger leader [journal]
-- ARGV   incarnation number lane try cursor n want {index reason}...
--        number: the one that `join` answered, which is another if a late `join` brings a former identity back; try:
--        grows with every sending, repeats included; cursor: messages this lane had settled before; n: how many of its
--        list, from the head, it settles now; the pairs name those among them that failed (index from 0). A journal is
--        written if its key is given.
-- Answer {'turn', cursor, held}: how many the lane holds after the step; it reads them from its list, which is nobody
--        else's · {'lost'} · {'late'}
-- Invariant: a settle is applied once, however often it is repeated, and only by the member that holds the messages. A
-- sending that was overtaken by its own repeat does nothing: it would claim for a lane that does not listen any more.
local members, member, inflight, ready, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local errors, ledger, leader, journal = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local try, cursor, n, want = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local cursor_field, try_field = 'cursor:' .. ARGV[3], 'try:' .. ARGV[3]

if not redis.call('ZSCORE', members, ARGV[1]) then
  return { 'lost' }
end
local facts = check_counts(member, cursor_field, try_field, 'number', 'failed')
local stored, number = tonumber(facts[1] or 0), facts[3]
if number ~= ARGV[2] then
  return { 'lost' }
end
if try <= tonumber(facts[2] or 0) then
  return { 'late' }
end
local held = redis.call('LLEN', inflight)
local settles = to_settle(stored, cursor, n, held)
if settles == nil then
  return { 'lost' }
end
local waiting, rung = redis.call('LLEN', ready), redis.call('LLEN', bell)
local fails = settles and #ARGV > 7
if fails then
  check_counts(ledger, 'done', 'failed')
  redis.call('LLEN', errors)
end
if journal then
  redis.call('XLEN', journal)
end
-- Whoever generates does not handle: a lane that asked before its copy took office settles and gets nothing new.
if want > 0 and redis.call('HGET', leader, 'member') == ARGV[1] then
  want = 0
end

if settles then
  local failed, failed_ids = {}, {}
  local now = fails and text(now_ms())
  for i = 8, #ARGV, 2 do
    local element = redis.call('LINDEX', inflight, ARGV[i])
    failed[#failed + 1] = error_element(element, now, number, ARGV[i + 1])
    failed_ids[#failed_ids + 1] = string.match(element, '^%d+') or '0'
  end
  -- First of all writes, because it tells by itself if the count is no number.
  redis.call('HINCRBY', ledger, 'done', n - #failed)
  if journal then
    local ids = redis.call('LRANGE', inflight, 0, n - 1)
    for i, element in ipairs(ids) do
      ids[i] = string.match(element, '^%d+') or '0'
    end
    redis.call('XADD', journal, '*', 'ids', table.concat(ids, ' '), 'errors', table.concat(failed_ids, ' '),
      'member', number)
  end
  push_all('RPUSH', errors, failed)
  redis.call('LTRIM', inflight, n, -1)
  if fails then
    redis.call('HINCRBY', ledger, 'failed', #failed)
    redis.call('HINCRBY', member, 'failed', #failed)
  end
  stored = stored + n
  held = held - n
end
redis.call('HSET', member, cursor_field, text(stored), try_field, text(try))

if held == 0 then
  -- A message whose handler died travels alone from then on, so that one that kills its handlers takes no others along.
  if want > 1 and waiting > 1 and not string.find(redis.call('LINDEX', ready, 0), '^%d+ %d+ 1 ') then
    want = 1
  end
  local left = claim(ready, waiting, inflight, want)
  held, waiting = waiting - left, left
end
-- As ring_bell does, with what is known already: each look costs about as much as a message.
if waiting > 0 and rung == 0 then
  redis.call('RPUSH', bell, '1')
end
return { 'turn', stored, held }
