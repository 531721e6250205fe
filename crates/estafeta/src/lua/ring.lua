-- ring: rings the bell again, for the case that a frozen copy swallowed the last ring.
-- KEYS   ready bell
-- Answer {'rung'}
ring_bell(KEYS[1], KEYS[2])
return { 'rung' }
