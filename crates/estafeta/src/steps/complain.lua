-- complain: records that the handler of a member can handle nothing at the moment.
-- KEYS   member events
-- ARGV   pause-ms reason
--        pause-ms: the shortest time between two such events of one member.
-- Answer {'noted', now} · {'quiet'} (the last event of this member is not as old) · {'lost'} (there is no such member)
-- Invariant: a repeat records nothing. The complaints of a member do not crowd other events out of the stream.
local member, events = KEYS[1], KEYS[2]
local facts = check_counts(member, 'number', 'complained')
local number, last = facts[1], tonumber(facts[2])
if not number then
  return { 'lost' }
end
local now = now_ms()
-- A time that lies ahead is left over from a clock that jumped back.
if last and last <= now and now - last < tonumber(ARGV[1]) then
  return { 'quiet' }
end
redis.call('XLEN', events)

redis.call('HSET', member, 'complained', text(now))
announce(events, 'handler-broken', 'member', number, 'reason', ARGV[2])
return { 'noted', now }
