-- bury: removes a dead member. What it held goes back where it came from.
-- KEYS   members succession member inflight ready errors ledger events journal open
-- ARGV   incarnation channel-prefix wakeup-prefix absent-since grace-ms detector
--        absent-since: Redis time at which the failure detector first missed the member (0: never). detector: the
--        member that runs the failure detector; empty if no member does.
-- Answer {'buried', number, returned, given-up} · {'alive'} · {'gone'}
-- Invariant: a member that looks alive now is not touched, whatever the failure detector saw before. Only a deadline
-- that a clock jump left too far off is cut to one lease. A detector whose own lease ran out is ignored.
local members, succession, member, events = KEYS[1], KEYS[2], KEYS[3], KEYS[8]
local victim, detector = ARGV[1], ARGV[6]

if not redis.call('ZSCORE', members, victim) then
  return { 'gone' }
end
local now = now_ms()
if detector ~= '' and tonumber(redis.call('ZSCORE', members, detector) or 0) < now then
  return { 'alive' }
end
local facts = redis.call('HMGET', member, 'number', 'kind', 'presence', 'lease', 'max-deaths', 'journal')
local number, kind = identify(facts[1], facts[2], KEYS[4])
-- If only the name of a member is left, its lease alone decides. If the member is alive, it gets `lost` and hands back
-- what it holds, which no other member knows.
local lease = tonumber(facts[4]) or math.huge
local state = look_at(members, victim, ARGV[2] .. victim, facts[3] == '1', lease, now)
if state == 'ahead' then
  redis.call('ZADD', members, 'XX', text(now + lease), victim)
end
if not is_dead(state, tonumber(ARGV[4]), tonumber(ARGV[5]), now) then
  return { 'alive' }
end
local keys = { inflight = KEYS[4], ready = KEYS[5], errors = KEYS[6], ledger = KEYS[7], open = KEYS[10] }
keys.journal = facts[6] == '1' and KEYS[9] or nil
local held = collect(kind, member, keys, tonumber(facts[5]) or math.huge)
local leads = held.queue.generator == victim
redis.call('XLEN', events)
redis.call('ZCARD', succession)

local returned = hand_back(held, keys, number, now)
if leads then
  vacate(keys.ledger, succession, number)
end
redis.call('ZREM', members, victim)
end_candidacy(keys.ledger, succession, victim)
redis.call('DEL', member)
redis.call('HINCRBY', keys.ledger, 'buried', 1)
announce(events, 'buried', 'member', number, 'why', state, 'returned', returned, 'gave-up', #held.spent)
stand_in_line(held.queue, victim, false)
wake_one(held.queue, ARGV[3])
save_queue(held.queue)
return { 'buried', tonumber(number), returned, #held.spent }
