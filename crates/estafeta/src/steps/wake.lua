-- wake: calls the first member in the line of idle ones, if messages wait or a delayed message is due. The member that
-- was called before may be frozen.
-- KEYS   ready ledger
-- ARGV   wakeup-prefix
-- Answer {'woken'}
-- Invariant: the step moves no message.
local queue = read_queue(KEYS[1], KEYS[2])
wake_one(queue, ARGV[1], nil, queue.soonest ~= 0 and queue.soonest <= now_ms())
save_queue(queue)
return { 'woken' }
