-- snapshot: reads everything that `status` shows, in one atomic step.
-- KEYS   schema application members succession ready errors later ledger events seconds {member inflight}...
-- ARGV   channel-prefix events-wanted members-known incarnation...
--        The caller names the members that it knows. If they are not the current members, it must ask again.
-- Answer {'snapshot', now, layout, application, waiting, later, errors, oldest, ledger{}, events{},
--        members{{...}...}} · {'changed'}
--        layout, application: empty if the ring has none yet. oldest: for how long the oldest message has waited.
--        a member: incarnation number kind host pid started lease-left state rank held generated processed failed
--        duties stuck durability lanes
local members, succession, ledger = KEYS[3], KEYS[4], KEYS[8]

if redis.call('ZCARD', members) ~= tonumber(ARGV[3]) then
  return { 'changed' }
end
local now = now_ms()
local list, key = {}, 11
for i = 4, #ARGV do
  local incarnation = ARGV[i]
  local deadline = redis.call('ZSCORE', members, incarnation)
  if not deadline then
    return { 'changed' }
  end
  local facts = redis.call('HMGET', KEYS[key], 'number', 'kind', 'host', 'pid', 'started', 'lease', 'presence',
    'generated', 'cursor', 'failed', 'held', 'back', 'duties', 'stuck', 'durability', 'lanes')
  -- A member whose registration was deleted has only its name left.
  if facts[1] then
    local held = facts[2] == 'reader' and redis.call('LLEN', KEYS[key + 1]) or tonumber(facts[11]) or 0
    local lease = tonumber(facts[6]) or math.huge
    local state = look_at(members, incarnation, ARGV[1] .. incarnation, facts[7] == '1', lease, now)
    local processed = (tonumber(facts[9]) or 0) - (tonumber(facts[12]) or 0)
    local rank = redis.call('ZRANK', succession, incarnation) or -1
    local lease_left = tonumber(deadline) - now
    list[#list + 1] = { incarnation, facts[1], facts[2], facts[3], facts[4], facts[5], lease_left, state, rank, held,
      tonumber(facts[8]) or 0, processed, tonumber(facts[10]) or 0, facts[13] or '', tonumber(facts[14]) or 0,
      facts[15] or '', tonumber(facts[16]) or 0 }
  end
  key = key + 2
end
local layout, application = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])
local waiting = peek(KEYS[5], ledger)
local soonest = tonumber(redis.call('HGET', ledger, 'soonest')) or 0
local oldest = oldest_age(KEYS[5], soonest, last_sample(KEYS[10]), now)
return { 'snapshot', now, layout or '', application or '', waiting, redis.call('ZCARD', KEYS[7]),
  redis.call('LLEN', KEYS[6]), oldest, redis.call('HGETALL', ledger),
  redis.call('XREVRANGE', KEYS[9], '+', '-', 'COUNT', ARGV[2]), list }
