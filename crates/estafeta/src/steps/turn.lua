-- turn: the only step of a lane. Settles what it handled, then claims the next messages.
-- KEYS   members member inflight ready wakeup errors ledger leader [journal]
-- ARGV   incarnation number lane try cursor n want elements {index reason}...
--        number: the one that `join` returned, which differs if a late `join` brings a former identity back. try: grows
--        with every try, including repeats. cursor: messages that this lane had settled before. n: how many messages it
--        settles now, from the head of its list. elements: the number of elements of the list when the lane read it, if
--        the lane settles all of it; 0 otherwise. The pairs name the settled messages that failed (index from 0). A
--        journal is written if its key is given.
-- Answer {'turn', cursor, elements}: how many elements the lane's list has after the step; the lane reads them from
--        there, because no other lane uses that list · {'lost'} · {'late'}
-- Invariant: a settle is applied once, however often it is repeated, and only by the member that holds the messages. A
-- try that its own repeat overtook does nothing: it would claim for a lane that no longer listens.
local members, member, inflight, ready, wakeup = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local errors, ledger, leader, journal = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local try, cursor, n, want = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local first_failure = 9
local fails = #ARGV >= first_failure
local cursor_field, try_field, packed_field = 'cursor:' .. ARGV[3], 'try:' .. ARGV[3], 'packed:' .. ARGV[3]

if not redis.call('ZSCORE', members, ARGV[1]) then
  return { 'lost' }
end
local facts = check_counts(member, cursor_field, try_field, packed_field, 'number', 'failed')
local stored, number = tonumber(facts[1] or 0), facts[4]
if number ~= ARGV[2] then
  return { 'lost' }
end
if try <= tonumber(facts[2] or 0) then
  return { 'late' }
end
local list = read_list(inflight, facts[3])
-- The step reads the messages only if some of them stay, if one failed, if there is a journal, or if their count may be
-- wrong. Elements that a foreign client pushed into the list were never counted.
local leaves_whole = n == count_of(list) and list.length == tonumber(ARGV[8]) and not fails and not journal
if n > 0 and not leaves_whole and not list.messages then
  read_messages(list)
end
local settles = to_settle(stored, cursor, n, count_of(list))
if settles == nil then
  return { 'lost' }
end
local queue, done = read_queue(ready, ledger, 'done')
local tokens = redis.call('LLEN', wakeup)
if fails then
  check_counts(ledger, 'failed')
  redis.call('LLEN', errors)
end
if journal then
  redis.call('XLEN', journal)
end
-- The generator never claims messages. If a lane asked before its node took office, it settles and gets nothing new.
if want > 0 and redis.call('HGET', leader, 'member') == ARGV[1] then
  want = 0
end

done = tonumber(done or 0)
if settles then
  local failed = note_outcomes(list.messages, n, number, errors, journal, first_failure)
  settle(list, n)
  if failed > 0 then
    redis.call('HINCRBY', ledger, 'failed', failed)
    redis.call('HINCRBY', member, 'failed', failed)
  end
  stored, done = stored + n, done + n - failed
end
if list.length == 0 then
  list.length, list.packed = claim(queue, inflight, allowed(queue, want))
end
redis.call('HSET', member, cursor_field, text(stored), try_field, text(try), packed_field, text(list.packed))
if settles or list.length > 0 then
  save_queue(queue, 'done', text(done))
end
-- Leaves a wakeup token as wake_one does, but with what is already known: each check costs about as much as a message.
if queue.length > 0 and tokens == 0 then
  redis.call('RPUSH', wakeup, '1')
end
return { 'turn', stored, list.length }
