-- turn: the one step of a lane. Settles what it handled, then claims what comes next.
-- KEYS   members member inflight ready bell errors ledger leader [journal]
-- ARGV   incarnation number lane try cursor n want elements {index reason}...
--        number: the one that `join` answered, which is another if a late `join` brings a former identity back; try:
--        grows with every sending, repeats included; cursor: messages this lane had settled before; n: how many of its
--        list, from the head, it settles now; elements: of how many elements its list was when it read it, if it
--        settles all that was in there, 0 otherwise; the pairs name those among them that failed (index from 0). A
--        journal is written if its key is given.
-- Answer {'turn', cursor, elements}: how many elements the lane's list has after the step; it reads them from there,
--        because the list is nobody else's · {'lost'} · {'late'}
-- Invariant: a settle is applied once, however often it is repeated, and only by the member that holds the messages. A
-- sending that was overtaken by its own repeat does nothing: it would claim for a lane that does not listen any more.
local members, member, inflight, ready, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local errors, ledger, leader, journal = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local try, cursor, n, want = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local first_failure = 9
local fails = #ARGV >= first_failure
local cursor_field, try_field, packed_field = 'cursor:' .. ARGV[3], 'try:' .. ARGV[3], 'packed:' .. ARGV[3]

if not redis.call('ZSCORE', members, ARGV[1]) then
  return { 'lost' }
end
local facts = check_counts(member, cursor_field, try_field, packed_field, 'number', 'failed')
local stored, surplus, number = tonumber(facts[1] or 0), math.max(tonumber(facts[3] or 0), 0), facts[4]
if number ~= ARGV[2] then
  return { 'lost' }
end
if try <= tonumber(facts[2] or 0) then
  return { 'late' }
end
local elements = redis.call('LLEN', inflight)
local held, messages = elements > 0 and elements + surplus or 0, nil
-- The messages themselves are read only where they do not all leave in peace, or where their count may be wrong: it is
-- gone with a hash that somebody deleted, and what somebody pushed into our lists was never counted.
local leaves_whole = n == held and elements == tonumber(ARGV[8]) and not fails and not journal
if elements > 0 and (not facts[3] or (n > 0 and not leaves_whole)) then
  messages = messages_of(inflight)
  held, surplus = #messages, #messages - elements
end
local settles = to_settle(stored, cursor, n, held)
if settles == nil then
  return { 'lost' }
end
local queue, rung = { key = ready, length = redis.call('LLEN', ready) }, redis.call('LLEN', bell)
local counts = check_counts(ledger, 'done', 'packed', 'loose')
local done = tonumber(counts[1] or 0)
-- An empty queue has no packs, whatever was counted.
queue.packed = queue.length > 0 and math.max(tonumber(counts[2] or 0), 0) or 0
queue.loose = queue.length > 0 and math.max(tonumber(counts[3] or 0), 0) or 0
if fails then
  check_counts(ledger, 'failed')
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
  local failed = note_outcomes(messages, n, number, errors, journal, first_failure)
  redis.call('DEL', inflight)
  push_all('RPUSH', inflight, messages or {}, n + 1)
  if failed > 0 then
    redis.call('HINCRBY', ledger, 'failed', failed)
    redis.call('HINCRBY', member, 'failed', failed)
  end
  stored, done = stored + n, done + n - failed
  elements, surplus = held - n, 0
end

if elements == 0 then
  -- A message whose handler died travels alone from then on, so that one that kills its handlers takes no others along.
  if want > 1 and queue.length > 1 then
    queue.head = redis.call('LINDEX', ready, 0)
    if not string.find(queue.head, '^%*?%d+ %d+ 1 ') then
      want = 1
    end
  end
  elements, surplus = claim(queue, inflight, want)
end
redis.call('HSET', member, cursor_field, text(stored), try_field, text(try), packed_field, text(surplus))
if settles or elements > 0 then
  redis.call('HSET', ledger, 'done', text(done), 'packed', text(queue.packed), 'loose', text(queue.loose))
end
-- As ring_bell does, with what is known already: each look costs about as much as a message.
if queue.length > 0 and rung == 0 then
  redis.call('RPUSH', bell, '1')
end
return { 'turn', stored, elements }
