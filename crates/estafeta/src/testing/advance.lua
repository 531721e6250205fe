-- advance: moves the times back that a ring has stored, as if that much time had passed. Only tests use it.
-- KEYS   succession ledger later ticks events
-- ARGV   ms channel-prefix
-- Answer {'advanced'}
-- Invariant: messages, counts and leases stay as they are. If a node is in office, its term ends. A generator reads the
-- ticks when its term begins, and would overwrite them with its own.
local succession, ledger, later, ticks, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local ms = tonumber(ARGV[1])

-- A time that has passed is still a time. 0 would mean that there is none.
local function earlier(time)
  return text(math.max(time - ms, 1))
end

local office = redis.call('HMGET', ledger, 'member', 'number', 'soonest', 'due', 'brakes')
local delayed = redis.call('ZRANGE', later, 0, -1, 'WITHSCORES')
local entries = redis.call('HGETALL', ticks)
redis.call('XLEN', events)
redis.call('ZCARD', succession)

for i = 1, #delayed, 2 do
  redis.call('ZADD', later, 'XX', earlier(delayed[i + 1]), delayed[i])
end
for i = 1, #entries, 2 do
  if tonumber(entries[i + 1]) then
    redis.call('HSET', ticks, entries[i], earlier(entries[i + 1]))
  end
end
local soonest, due = tonumber(office[3] or 0), tonumber(office[4] or 0)
if soonest ~= 0 then
  redis.call('HSET', ledger, 'soonest', earlier(soonest))
end
if due ~= 0 then
  redis.call('HSET', ledger, 'due', earlier(due))
end
-- The ends of two pauses, the limits, and the time at which the credit of the rate was counted.
local producing, handling, limits, since = string.match(office[5] or '', '^(%d+) (%d+) (.+) (%d+)$')
if producing then
  local ends = {}
  for i, time in ipairs({ producing, handling, since }) do
    time = tonumber(time)
    ends[i] = time ~= 0 and time < never and earlier(time) or text(time)
  end
  redis.call('HSET', ledger, 'brakes', table.concat({ ends[1], ends[2], limits, ends[3] }, ' '))
end
if office[1] then
  local number = office[2] or '0'
  vacate(ledger, succession, number)
  announce(events, 'resigned', 'member', number)
  call_heir(succession, ARGV[2], '')
end
return { 'advanced' }
