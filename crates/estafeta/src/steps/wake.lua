-- wake: calls the first member in the line of idle ones, if messages wait or a delayed message is due. A member that
-- was called may have been frozen.
-- KEYS   ready ledger
-- ARGV   wakeup-prefix
-- Answer {'woken'}
-- Invariant: it moves no message.
local queue = read_queue(KEYS[1], KEYS[2])
wake_one(queue, ARGV[1], nil, queue.soonest ~= 0 and queue.soonest <= now_ms())
save_queue(queue)
return { 'woken' }
