-- leave: removes the caller from the ring. Hands back what it held, and vacates the office if it held that.
-- KEYS   members succession member inflight ready errors ledger events
-- ARGV   incarnation channel-prefix wakeup-prefix
-- Answer {'left', returned}; {'left', 0} even if it was no longer a member.
-- Invariant: afterwards nothing in Redis belongs to the caller, even if a foreign client had removed its name or its
-- hash. A member that leaves cleanly turns no message into an error.
local members, succession, member, events = KEYS[1], KEYS[2], KEYS[3], KEYS[8]
local keys = { inflight = KEYS[4], ready = KEYS[5], errors = KEYS[6], ledger = KEYS[7] }
local me = ARGV[1]

local is_listed = redis.call('ZSCORE', members, me)
local facts = redis.call('HMGET', member, 'number', 'kind')
if not is_listed and not facts[1] then
  return { 'left', 0 }
end
local number, kind = identify(facts[1], facts[2], KEYS[4])
local held = collect(kind, member, keys, nil)
local leads = held.queue.generator == me
redis.call('XLEN', events)
redis.call('ZCARD', succession)

local returned = hand_back(held, keys, number, now_ms())
if leads then
  vacate(keys.ledger, succession, number)
  call_heir(succession, ARGV[2], me)
end
redis.call('ZREM', members, me)
end_candidacy(keys.ledger, succession, me)
redis.call('DEL', member)
announce(events, 'left', 'member', number, 'returned', returned)
stand_in_line(held.queue, me, false)
wake_one(held.queue, ARGV[3])
save_queue(held.queue)
return { 'left', returned }
