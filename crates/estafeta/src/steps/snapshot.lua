-- snapshot: reads everything that `status` shows, in one atomic step.
-- KEYS   members succession leader ready errors ledger events {member inflight...}...
-- ARGV   channel-prefix events-wanted members-known {incarnation lanes}...
--        The caller names the members that it knows, with 0 lanes if a member has no registration. If they are not
--        the current members, it must ask again.
-- Answer {'snapshot', now, waiting, errors, leader{}, ledger{}, events{}, members{{...}...}} · {'changed'}
--        a member: incarnation number kind host pid started lease-left state rank held generated processed failed
local members, succession, leader, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[6]

if redis.call('ZCARD', members) ~= tonumber(ARGV[3]) then
  return { 'changed' }
end
-- The fields to read of a member with this number of lanes. Most members have the same number, and building strings is
-- the main cost.
local fields_of = {}
local function fields_with(lanes)
  if not fields_of[lanes] then
    local fields = { 'number', 'kind', 'host', 'pid', 'started', 'lease', 'presence', 'generated', 'failed' }
    for lane = 0, lanes - 1 do
      fields[#fields + 1] = 'cursor:' .. lane
      fields[#fields + 1] = 'packed:' .. lane
    end
    fields_of[lanes] = fields
  end
  return fields_of[lanes]
end

local now = now_ms()
local list, key = {}, 8
for i = 4, #ARGV, 2 do
  local incarnation, lanes = ARGV[i], tonumber(ARGV[i + 1])
  local deadline = redis.call('ZSCORE', members, incarnation)
  if not deadline then
    return { 'changed' }
  end
  local facts = redis.call('HMGET', KEYS[key], unpack(fields_with(lanes)))
  -- The caller may have read the registration before it was deleted or written.
  if (facts[1] ~= false) ~= (lanes > 0) then
    return { 'changed' }
  end
  if facts[1] then
    local held, processed = 0, 0
    for lane = 1, lanes do
      held = held + count_of(read_list(KEYS[key + lane], facts[2] == 'reader' and 0 or facts[9 + 2 * lane]))
      processed = processed + (tonumber(facts[8 + 2 * lane]) or 0)
    end
    local state = look_at(members, incarnation, ARGV[1] .. incarnation, facts[7] == '1', tonumber(facts[6]), now)
    local rank = redis.call('ZRANK', succession, incarnation) or -1
    local lease_left = tonumber(deadline) - now
    list[#list + 1] = { incarnation, facts[1], facts[2], facts[3], facts[4], facts[5], lease_left, state, rank, held,
      tonumber(facts[8]) or 0, processed, tonumber(facts[9]) or 0 }
  end
  key = key + 1 + lanes
end
local waiting = count_of(read_list(KEYS[4], redis.call('HGET', ledger, 'packed') or 0))
return { 'snapshot', now, waiting, redis.call('LLEN', KEYS[5]), redis.call('HGETALL', leader),
  redis.call('HGETALL', ledger), redis.call('XREVRANGE', KEYS[7], '+', '-', 'COUNT', ARGV[2]), list }
