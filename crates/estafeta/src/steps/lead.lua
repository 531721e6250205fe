-- lead: takes office if it is vacant, or takes it over if its holder is dead. A new term extends the caller's lease.
-- KEYS   members succession member epoch ledger events
-- ARGV   incarnation lease-ms channel-prefix absent-since grace-ms interval-ms silence-ms known epoch born replaces
--        absent-since: Redis time at which the caller first missed the leader (0: never). silence-ms: how long ago it
--        last saw the leader connected. known, epoch: how many messages the caller knows to be published, and the
--        highest epoch that it knows. born: when the ring began of which it knows that. replaces: the caller's own
--        epoch, if it needs a new one because Redis has lost what it acknowledged; 0 otherwise.
-- Answer {'leads', epoch, sent, published, due, now, predecessor, silence} · {'follows'} · {'lost'}
--        silence: how long the office was vacant, or its holder not heard of, in ms.
-- Invariant: epochs only grow, even if the stored one was rolled back. They are never below Redis' time. No id that
-- the caller knows to be published is given out again: what Redis has lost of them counts as lost.
local members, member, epochs, ledger, events = KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local me, lease, interval = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[6])

local deadline = redis.call('ZSCORE', members, me)
local facts = redis.call('HMGET', member, 'number', 'presence')
local number, presence = facts[1], facts[2]
if not (deadline and number and presence and redis.call('ZSCORE', KEYS[2], me)) then
  return { 'lost' }
end
local now = now_ms()
local office = redis.call('HMGET', ledger, 'member', 'epoch', 'sent', 'due', 'presence', 'lease', 'last', 'vacated',
  'base', 'yielded')
local incumbent, due = office[1], tonumber(office[4]) or now
local its_epoch, sent, its_lease, vacated =
  tonumber(office[2]), tonumber(office[3]), tonumber(office[6]) or 0, tonumber(office[8])
local counts = check_counts(ledger, 'published', 'born', 'lost', 'takeovers')
local found, latest = tonumber(counts[1] or 0), tonumber(checked(redis.call('GET', epochs), epochs) or 0)
local known_epoch = tonumber(ARGV[9])
local published = found + loss(ARGV[8], known_epoch, ARGV[10], found, its_epoch, tonumber(office[9]), counts[2])

-- A term whose fields were partly deleted cannot be reported again, so the next one begins. If a call with `replaces`
-- is repeated, the stored epoch is already a newer one.
if incumbent == me and ARGV[11] ~= office[2] and its_epoch and sent then
  return { 'leads', its_epoch, sent, found, due, now, 0, 0 }
end
local silence = tonumber(ARGV[7])
if incumbent and incumbent ~= me then
  local state = look_at(members, incumbent, ARGV[3] .. incumbent, office[5] == '1', its_lease, now)
  -- A caller whose own lease ran out cannot decide about the lease of others.
  if tonumber(deadline) < now or not is_dead(state, tonumber(ARGV[4]), tonumber(ARGV[5]), now) then
    return { 'follows' }
  elseif state == 'expired' then
    -- A frozen holder looks connected until the end. It was last heard of when it extended its lease.
    silence = now - tonumber(redis.call('ZSCORE', members, incumbent)) + its_lease
  end
elseif not incumbent and vacated then
  silence = now - vacated
  -- The member whose source failed too often lets others try first, but no longer than for one lease.
  if office[10] == me and silence >= 0 and silence < lease and redis.call('ZCARD', KEYS[2]) > 1 then
    return { 'follows' }
  end
end
local epoch = math.max(latest, known_epoch, now - 1) + 1
local predecessor = string.match(office[7] or '', '^%d+$') or '0'
redis.call('XLEN', events)

-- A tick further off than one interval is left over from another setting or from a clock that jumped back.
due = math.min(due, now + interval)
redis.call('SET', epochs, text(epoch))
redis.call('HSET', ledger, 'member', me, 'number', number, 'epoch', text(epoch), 'sent', 0, 'due', text(due),
  'presence', presence, 'lease', ARGV[2], 'since', text(now), 'last', number, 'base', text(published), 'reported', 0)
redis.call('HDEL', ledger, 'yielded')
redis.call('ZADD', members, 'XX', text(now + lease), me)
if published > found then
  note_loss(ledger, events, number, published, found)
end
if predecessor ~= '0' and predecessor ~= number then
  redis.call('HINCRBY', ledger, 'takeovers', 1)
  announce(events, 'took-over', 'member', number, 'from', predecessor, 'silence', text(silence), 'epoch', text(epoch))
else
  announce(events, 'took-office', 'member', number, 'epoch', text(epoch))
end
return { 'leads', epoch, 0, published, due, now, tonumber(predecessor), silence }
