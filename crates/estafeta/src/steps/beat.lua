-- beat: extends the caller's lease and reports the state of the caller and the office.
-- KEYS   members succession ledger member events latencies
-- ARGV   incarnation lease-ms channel-prefix known epoch born n wait handling
--        known: how many messages the caller knows to be published, in this epoch. born: when the ring began of which
--        it knows that. wait, handling: latencies that the caller has counted. n: the number of this group, 0 if it has
--        none.
-- Answer {'stands', now, overslept(0|1), rank, state, leader-incarnation, epoch, published, outstanding, born,
--        member-count} · {'lost'}
--        rank is the place in the line of succession (-1: none). state is how the leader looks: none me alive expired
--        absent ahead. outstanding counts messages that have no outcome yet. overslept: the caller's lease had run out,
--        so what it sees of others proves nothing yet.
-- Invariant: a buried member gets `lost` and is not revived. So does a member of which only the name is left, because
-- its registration was deleted. Only that member knows what it holds, so only it can hand that back and join again.
-- If a member other than the generator knows of messages that Redis has lost, the step counts them once, so that no
-- later message gets their ids. The generator itself takes a new epoch instead, and `lead` counts them. If a member
-- knows a ring that began at another time, the step reports once that this ring was wiped. Each group of latencies is
-- added once. They are only statistics, so a damaged value among them stops no beat.
local members, succession, ledger, member, events, latencies = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local me, lease = ARGV[1], tonumber(ARGV[2])

local deadline = redis.call('ZSCORE', members, me)
local facts = redis.call('HMGET', member, 'number', 'noted')
local number = facts[1]
if not deadline or not number then
  return { 'lost' }
end
local now = now_ms()
local office = redis.call('HMGET', ledger, 'member', 'epoch', 'presence', 'lease', 'base')
local incumbent, epoch, base = office[1], tonumber(office[2]) or 0, tonumber(office[5])
local rank = redis.call('ZRANK', succession, me) or -1

local state
if not incumbent then
  state = 'none'
elseif incumbent == me then
  state = 'me'
else
  local its_lease = tonumber(office[4]) or 0
  state = look_at(members, incumbent, ARGV[3] .. incumbent, office[3] == '1', its_lease, now) or 'expired'
  local ahead_of_me = redis.call('ZRANK', succession, incumbent)
  if ahead_of_me and ahead_of_me < rank then
    rank = rank - 1
  end
end
local counts = check_counts(ledger, 'published', 'done', 'failed', 'retried', 'lost', 'born', 'cancelled')
for i = 1, 7 do
  counts[i] = tonumber(counts[i] or 0)
end
local lost = incumbent == me and 0 or loss(ARGV[4], ARGV[5], ARGV[6], counts[1], epoch, base, counts[6])
local former = tonumber(ARGV[6])
local was_wiped = former > 0 and former ~= counts[6] and not redis.call('HGET', ledger, 'former')
if lost > 0 or was_wiped then
  redis.call('XLEN', events)
end

redis.call('ZADD', members, 'XX', text(now + lease), me)
if tonumber(ARGV[7]) > (tonumber(facts[2]) or 0) then
  redis.call('HSET', member, 'noted', ARGV[7])
  for i, kind in ipairs({ 'w', 'h' }) do
    local added = {}
    add_latencies(added, ARGV[7 + i])
    for at, count in pairs(added) do
      if count > 0 then
        redis.pcall('HINCRBY', latencies, kind .. at, text(count))
      end
    end
  end
end
local published = counts[1] + lost
if lost > 0 then
  note_loss(ledger, events, number, published, counts[1])
  if tonumber(ARGV[5]) < epoch then
    redis.call('HSET', ledger, 'base', ARGV[4])
  end
end
if was_wiped then
  redis.call('HSET', ledger, 'former', ARGV[6])
  announce(events, 'wiped', 'member', number, 'known', ARGV[4])
end
return { 'stands', now, tonumber(deadline) < now and 1 or 0, rank, state, incumbent or '', epoch, published,
  counts[1] - counts[2] - counts[3] + counts[4] - counts[5] - counts[7], counts[6], redis.call('ZCARD', members) }
