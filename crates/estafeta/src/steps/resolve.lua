-- resolve: retries or drops errors that the caller has read before.
-- KEYS   errors ready ledger events
-- ARGV   verb(retry|drop) wakeup-prefix element...
-- Answer {'resolved', count}: the number of elements that were still there. An error that a reader took meanwhile is
--        not touched.
-- Invariant: one step removes an error and either puts its message back into the queue or counts it as taken.
local errors, ready, ledger, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local drops = ARGV[1] == 'drop'

local queue = read_queue(ready, ledger, 'taken', 'dropped', 'retried')
redis.call('XLEN', events)

-- LREM, the first write, fails by itself if its key is of another type.
local again, count = {}, 0
for i = 3, #ARGV do
  local retried = not drops and retried_message(ARGV[i])
  if (drops or retried) and redis.call('LREM', errors, 1, ARGV[i]) == 1 then
    count = count + 1
    again[count] = retried
  end
end
if count > 0 and drops then
  redis.call('HINCRBY', ledger, 'taken', count)
  redis.call('HINCRBY', ledger, 'dropped', count)
  announce(events, 'dropped', 'count', count)
elseif count > 0 then
  push(queue, again, 1, count)
  redis.call('HINCRBY', ledger, 'retried', count)
  announce(events, 'retried', 'count', count)
  wake_one(queue, ARGV[2])
  save_queue(queue)
end
return { 'resolved', count }
