-- leave: removes the caller from the ring. Hands back what it held, and vacates the office if it held that.
-- KEYS   members succession member leader ready wakeup errors ledger events inflight...
-- ARGV   incarnation channel-prefix
-- Answer {'left', returned}; {'left', 0} even if it was no longer a member.
-- Invariant: afterwards nothing in Redis belongs to the caller. A member that leaves cleanly turns no message into an
-- error.
local members, succession, member, leader, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[9]
local keys = { ready = KEYS[5], errors = KEYS[7], ledger = KEYS[8] }
local me = ARGV[1]

if not redis.call('ZSCORE', members, me) then
  return { 'left', 0 }
end
local facts = redis.call('HMGET', member, 'number', 'kind')
local number, kind = identify(facts[1], facts[2], succession, me)
local held = collect(kind, { unpack(KEYS, 10) }, keys, nil)
local leads = redis.call('HGET', leader, 'member') == me
redis.call('LLEN', KEYS[6])
redis.call('XLEN', events)

local returned = hand_back(held, keys, number, now_ms())
if leads then
  vacate(leader, succession, number)
  call_heir(succession, ARGV[2], me)
end
redis.call('ZREM', members, me)
end_candidacy(leader, succession, me)
redis.call('DEL', member)
announce(events, 'left', 'member', number, 'returned', returned)
wake_one(keys.ready, KEYS[6])
return { 'left', returned }
