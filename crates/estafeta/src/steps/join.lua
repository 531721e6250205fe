-- join: registers a node as a member of the ring.
-- KEYS   schema members succession member ledger events leader epoch ready bell errors journal
-- ARGV   schema-version incarnation kind(member|reader) lanes host pid lease-ms presence(0|1) max-attempts journal(0|1)
-- Answer {'joined', number, now} · {'schema', theirs}
-- Invariant: a foreign or newer ring stays untouched. The same incarnation is never registered twice.
local schema, members, succession, member, ledger, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local incarnation, kind, lease = ARGV[2], ARGV[3], tonumber(ARGV[7])

local theirs = redis.call('GET', schema)
if theirs and theirs ~= ARGV[1] then
  return { 'schema', theirs }
end
-- These reads fail on a key of another type. They check every key that the ring will ever write before it starts.
redis.call('ZCARD', members)
redis.call('ZCARD', succession)
check_counts(ledger, 'joined')
redis.call('XLEN', events)
redis.call('HLEN', KEYS[7])
redis.call('GET', KEYS[8])
redis.call('LLEN', KEYS[9])
redis.call('LLEN', KEYS[10])
redis.call('LLEN', KEYS[11])
redis.call('XLEN', KEYS[12])

local now = now_ms()
local known = redis.call('HGET', member, 'number')
if known then
  return { 'joined', tonumber(known), now }
end

redis.call('SET', schema, ARGV[1])
local number = redis.call('HINCRBY', ledger, 'joined', 1)
redis.call('HSET', member, 'number', number, 'kind', kind, 'lanes', ARGV[4], 'host', ARGV[5], 'pid', ARGV[6],
  'lease', ARGV[7], 'presence', ARGV[8], 'max-attempts', ARGV[9], 'journal', ARGV[10], 'started', text(now))
redis.call('ZADD', members, text(now + lease), incarnation)
if kind == 'member' then
  redis.call('ZADD', succession, number, incarnation)
end
announce(events, 'joined', 'member', number, 'role', kind, 'host', ARGV[5], 'pid', ARGV[6])
return { 'joined', number, now }
