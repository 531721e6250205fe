-- wake: leaves a new wakeup token, in case a frozen node took the last one without acting on it.
-- KEYS   ready bell
-- Answer {'rung'}
ring_bell(KEYS[1], KEYS[2])
return { 'rung' }
