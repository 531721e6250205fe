-- confirm: writes a mark, so that Redis can confirm this write and all earlier ones.
-- KEYS   confirmed
-- ARGV   memory-ms
--        memory-ms: how long the mark stays in Redis
-- Answer {'marked'}
-- Invariant: the step always writes, even if it is repeated. `WAIT` waits for the last write of its connection, and
-- a step that was repeated may have written nothing on this one.
redis.call('SET', KEYS[1], 1, 'PX', ARGV[1])
return { 'marked' }
