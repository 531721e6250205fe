-- bury: removes a dead member; what it held goes back where it came from.
-- KEYS   members succession member leader ready bell errors ledger events journal inflight...
-- ARGV   incarnation channel-prefix absent-since grace-ms max-attempts journal(0|1)
--        absent-since: Redis time at which the judge first missed it (0: never).
-- Answer {'buried', number, returned, given-up} · {'alive'} · {'gone'}
-- Invariant: a member that looks well now is not touched, whatever the judge saw before. A deadline that a clock jump
-- left too far off is cut to one lease.
local members, succession, member, leader, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[9]
local keys = { ready = KEYS[5], errors = KEYS[7], ledger = KEYS[8], journal = ARGV[6] == '1' and KEYS[10] or nil }
local victim = ARGV[1]

if not redis.call('ZSCORE', members, victim) then
  return { 'gone' }
end
local now = now_ms()
local facts = redis.call('HMGET', member, 'number', 'kind', 'lanes', 'presence', 'lease')
local number, lease = facts[1], tonumber(facts[5])
local state = look_at(members, victim, ARGV[2] .. victim, facts[4] == '1', lease, now)
if state == 'ahead' then
  redis.call('ZADD', members, 'XX', text(now + lease), victim)
  return { 'alive' }
elseif not is_dead(state, tonumber(ARGV[3]), tonumber(ARGV[4]), now) then
  return { 'alive' }
end
local held = collect(facts[2], { unpack(KEYS, 11) }, keys, tonumber(ARGV[5]))
local leads = redis.call('HGET', leader, 'member') == victim
redis.call('ZCARD', succession)
redis.call('LLEN', KEYS[6])
redis.call('XLEN', events)

give_back(held, keys, number, now)
if leads then
  vacate(leader, succession, number)
end
redis.call('ZREM', members, victim)
redis.call('ZREM', succession, victim)
redis.call('DEL', member)
redis.call('HINCRBY', keys.ledger, 'buried', 1)
announce(events, 'buried', 'member', number, 'why', state, 'returned', #held.back, 'gave-up', #held.spent)
ring_bell(keys.ready, KEYS[6])
return { 'buried', tonumber(number), #held.back, #held.spent }
