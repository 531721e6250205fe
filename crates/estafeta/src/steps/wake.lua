-- wake: leaves a wakeup token if messages wait and no token is there. A frozen node may have taken the last one.
-- KEYS   ready wakeup
-- Answer {'woken'}
-- Invariant: there is never more than one token.
wake_one(KEYS[1], KEYS[2])
return { 'woken' }
