-- wake: leaves a new wakeup token, in case a frozen node took the last one without acting on it.
-- KEYS   ready wakeup
-- Answer {'woken'}
wake_one(KEYS[1], KEYS[2])
return { 'woken' }
