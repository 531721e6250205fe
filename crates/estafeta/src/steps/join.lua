-- join: registers a node or a reader as a member of the ring.
-- KEYS   schema application members succession member ledger events epoch ready errors journal
-- ARGV   schema-version application incarnation kind lanes host pid lease-ms presence max-deaths journal
--        (kind is node or reader; presence and journal are 0 or 1)
-- Answer {'joined', number, now} · {'schema', theirs} · {'application', theirs}
-- Invariant: a ring with another layout version, another application or foreign data stays untouched. The same
-- incarnation is never registered twice. Only nodes of one application share a ring. A reader has no application
-- (empty) and may join any ring.
local schema, application, members, succession, member = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local ledger, events = KEYS[6], KEYS[7]
local ours, incarnation, kind, lease = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[8])

local theirs = redis.call('GET', schema)
if theirs and theirs ~= ARGV[1] then
  return { 'schema', theirs }
end
theirs = redis.call('GET', application)
if theirs and ours ~= '' and theirs ~= ours then
  return { 'application', theirs }
end
-- These reads fail on a key of another type. So the step checks every key that the ring will ever use before its first
-- write.
redis.call('ZCARD', members)
redis.call('ZCARD', succession)
local born = check_counts(ledger, 'joined', 'born')[2]
redis.call('XLEN', events)
redis.call('GET', KEYS[8])
redis.call('LLEN', KEYS[9])
redis.call('LLEN', KEYS[10])
redis.call('XLEN', KEYS[11])

local now = now_ms()
local known = redis.call('HGET', member, 'number')
if known then
  return { 'joined', tonumber(known), now }
end

redis.call('SET', schema, ARGV[1])
if ours ~= '' then
  redis.call('SET', application, ours)
end
if not born then
  redis.call('HSET', ledger, 'born', text(now))
end
local number = redis.call('HINCRBY', ledger, 'joined', 1)
redis.call('HSET', member, 'number', number, 'kind', kind, 'lanes', ARGV[5], 'host', ARGV[6], 'pid', ARGV[7],
  'lease', ARGV[8], 'presence', ARGV[9], 'max-deaths', ARGV[10], 'journal', ARGV[11], 'started', text(now))
redis.call('ZADD', members, text(now + lease), incarnation)
if kind == 'node' then
  redis.call('ZADD', succession, number, incarnation)
end
announce(events, 'joined', 'member', number, 'role', kind, 'host', ARGV[6], 'pid', ARGV[7])
return { 'joined', number, now }
