-- resolve: retries or drops errors that the caller has read before.
-- KEYS   errors ready ledger events
-- ARGV   verb(retry|drop) by wakeup-prefix {index element}...
--        by: who asked for it, for the event. Empty: not known.
--        index: where the caller saw the element in the list, counted from 0
-- Answer {'resolved', count}: the number of elements that were still in their places. An error that a reader took
--        meanwhile, or that has moved, is not touched.
-- Invariant: one step removes an error and either puts its message back into the queue or counts it as taken.
local errors, ready, ledger, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local drops, by = ARGV[1] == 'drop', ARGV[2]
-- What stands for an error until it is removed, together with the others. A search of the list for each error would
-- block Redis for seconds if the list is long.
local mark = 'estafeta: resolved'

local queue = read_queue(ready, ledger)
check_counts(ledger, 'taken', 'dropped', 'retried')
redis.call('XLEN', events)

local length = redis.call('LLEN', errors)

local again, count = {}, 0
for i = 4, #ARGV, 2 do
  local index, element = ARGV[i], ARGV[i + 1]
  local retried = not drops and retried_message(element)
  if (drops or retried) and redis.call('LRANGE', errors, index, index)[1] == element then
    redis.call('LSET', errors, index, mark)
    count = count + 1
    again[count] = retried
  end
end
if count > 0 then
  -- The search begins at the nearer end of the list.
  redis.call('LREM', errors, tonumber(ARGV[4]) < length / 2 and count or -count, mark)
end
if count > 0 and drops then
  redis.call('HINCRBY', ledger, 'taken', count)
  redis.call('HINCRBY', ledger, 'dropped', count)
  announce(events, 'dropped', 'count', count, 'by', by)
elseif count > 0 then
  push(queue, again, 1, count)
  redis.call('HINCRBY', ledger, 'retried', count)
  announce(events, 'retried', 'count', count, 'by', by)
  wake_one(queue, ARGV[3])
  save_queue(queue)
end
return { 'resolved', count }
