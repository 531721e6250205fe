-- wake: calls the first member in the line of idle ones, if messages wait. One that was called before may have been
-- frozen.
-- KEYS   ready ledger
-- ARGV   wakeup-prefix
-- Answer {'woken'}
-- Invariant: it moves no message.
local queue = read_queue(KEYS[1], KEYS[2])
wake_one(queue, ARGV[1])
save_queue(queue)
return { 'woken' }
