-- lead: takes office if it is vacant, or takes it over if its holder is dead. Extends the caller's lease if it leads.
-- KEYS   members succession member leader epoch ledger events
-- ARGV   incarnation lease-ms channel-prefix absent-since grace-ms interval-ms silence-ms known-published renew(0|1)
--        absent-since: Redis time at which the caller first missed the leader (0: never). silence-ms: how long ago it
--        last saw the leader connected. known-published: messages that the caller knows to be published. renew: the
--        caller already leads and wants a new epoch, because Redis has lost what it acknowledged.
-- Answer {'leads', epoch, sent, published, due, now, predecessor, silence} · {'follows'} · {'lost'}
--        silence: how long the office was vacant, or its holder not heard of, in ms.
-- Invariant: epochs only grow, even if the stored one was rolled back. They are never below Redis' time.
local members, member, leader, epochs, ledger, events = KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local me, lease, interval = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[6])

local deadline = redis.call('ZSCORE', members, me)
local facts = redis.call('HMGET', member, 'number', 'presence')
local number, presence = facts[1], facts[2]
if not (deadline and number and presence and redis.call('ZSCORE', KEYS[2], me)) then
  return { 'lost' }
end
local now = now_ms()
local office = redis.call('HMGET', leader, 'member', 'epoch', 'sent', 'due', 'presence', 'lease', 'last', 'vacated')
local incumbent, due = office[1], tonumber(office[4]) or now
local its_epoch, sent, its_lease, vacated =
  tonumber(office[2]), tonumber(office[3]), tonumber(office[6]) or 0, tonumber(office[8])
local published = tonumber(check_counts(ledger, 'published', 'takeovers')[1] or 0)

-- A term whose record was partly deleted cannot be reported again, so the next one begins.
if incumbent == me and ARGV[9] == '0' and its_epoch and sent then
  return { 'leads', its_epoch, sent, published, due, now, 0, 0 }
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
end
local epoch = math.max(tonumber(checked(redis.call('GET', epochs)) or 0) + 1, now)
local predecessor = string.match(office[7] or '', '^%d+$') or '0'
redis.call('XLEN', events)

-- A tick further off than one interval is left over from another setting or from a clock that jumped back.
due = math.min(due, now + interval)
redis.call('SET', epochs, text(epoch))
redis.call('HSET', leader, 'member', me, 'number', number, 'epoch', text(epoch), 'sent', 0, 'due', text(due),
  'presence', presence, 'lease', ARGV[2], 'since', text(now), 'last', number)
redis.call('ZADD', members, 'XX', text(now + lease), me)
if published < tonumber(ARGV[8]) then
  announce(events, 'rolled-back', 'member', number, 'known', ARGV[8], 'found', published)
end
if predecessor ~= '0' and predecessor ~= number then
  redis.call('HINCRBY', ledger, 'takeovers', 1)
  announce(events, 'took-over', 'member', number, 'from', predecessor, 'silence', text(silence), 'epoch', text(epoch))
else
  announce(events, 'took-office', 'member', number, 'epoch', text(epoch))
end
return { 'leads', epoch, 0, published, due, now, tonumber(predecessor), silence }
