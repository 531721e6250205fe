-- join: registers a node or a reader as a member of the ring.
-- KEYS   schema requires application members succession member ledger events epoch ready errors journal later delayed
-- KEYS   ticks checkpoint singles open schedule latencies seconds tens minutes
-- ARGV   oldest newest known-words application incarnation kind lanes host pid lease-ms presence max-deaths journal
-- ARGV   duties durability demand
--        oldest, newest: the layouts that the caller knows. known-words: those of `requires`, with spaces between them.
--        demand: a word that `requires` of this ring must contain, or empty. A ring without an application gets it.
--        kind: node or reader. presence, journal: 0 or 1. duties: both, generate or handle. A node that only handles is
--        not in the line of succession. durability: only shown to users.
-- Answer {'joined', number, now} · {'schema', theirs} · {'requires', word} · {'lacks', word} · {'application', theirs}
-- Invariant: a ring with a layout that the caller does not know, with a requirement that it does not know, without the
-- one that it demands, of another application or with foreign data stays untouched. A new ring gets the newest layout
-- that the caller knows. The same incarnation is never registered twice. Only nodes of one application share a ring. A
-- reader has no application (empty) and may join any ring.
local schema, application, members, succession, member = KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local ledger, events = KEYS[7], KEYS[8]
local ours, incarnation, kind, lease = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[10])

local layout, _, refusal, adds = admit(schema, KEYS[2], application, ours, ARGV[1], ARGV[2], ARGV[3], ARGV[16])
if refusal then
  return refusal
end
-- These reads fail on a key of another type. So before its first write, the step checks every key of the ring that has
-- a fixed name.
redis.call('ZCARD', members)
redis.call('ZCARD', succession)
local born = check_counts(ledger, 'joined', 'born')[2]
redis.call('XLEN', events)
redis.call('GET', KEYS[9])
redis.call('LLEN', KEYS[10])
redis.call('LLEN', KEYS[11])
redis.call('XLEN', KEYS[12])
redis.call('ZCARD', KEYS[13])
redis.call('HGET', KEYS[14], '')
redis.call('HGET', KEYS[15], '')
redis.call('GET', KEYS[16])
redis.call('HGET', KEYS[17], '')
redis.call('HGET', KEYS[18], '')
redis.call('HGET', KEYS[19], '')
redis.call('HGET', KEYS[20], '')
redis.call('LLEN', KEYS[21])
redis.call('LLEN', KEYS[22])
redis.call('LLEN', KEYS[23])

local now = now_ms()
local known = redis.call('HGET', member, 'number')
if known then
  return { 'joined', tonumber(known), now }
end

if not layout then
  redis.call('SET', schema, ARGV[2])
end
if adds then
  redis.call('SADD', KEYS[2], ARGV[16])
end
if ours ~= '' then
  redis.call('SET', application, ours)
end
if not born then
  redis.call('HSET', ledger, 'born', text(now))
end
local number = redis.call('HINCRBY', ledger, 'joined', 1)
redis.call('HSET', member, 'number', number, 'kind', kind, 'lanes', ARGV[7], 'host', ARGV[8], 'pid', ARGV[9],
  'lease', ARGV[10], 'presence', ARGV[11], 'max-deaths', ARGV[12], 'journal', ARGV[13], 'started', text(now),
  'layouts', ARGV[1] .. ' ' .. ARGV[2], 'duties', ARGV[14],
  'durability', ARGV[15])
redis.call('ZADD', members, text(now + lease), incarnation)
if kind == 'node' and ARGV[14] ~= 'handle' then
  -- A member that gave way stands behind all others, perhaps with a place higher than any number.
  redis.call('ZADD', succession, text(math.max(number, end_of_line(succession))), incarnation)
end
announce(events, 'joined', 'member', number, 'role', kind, 'host', ARGV[8], 'pid', ARGV[9])
return { 'joined', number, now }
