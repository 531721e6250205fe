-- suspects: names the members that do not look well. Only reads; `bury` looks again before it acts.
-- KEYS   members ready bell
-- ARGV   channel-prefix lease-ms
-- Answer {now, unrung(0|1), incarnation, state, incarnation, state ...}, state: expired absent ahead
--        unrung: messages wait and the bell is silent, so somebody may have swallowed the ring.
local members, ready, bell = KEYS[1], KEYS[2], KEYS[3]
local lease = tonumber(ARGV[2])

local now = now_ms()
local unrung = redis.call('LLEN', ready) > 0 and redis.call('LLEN', bell) == 0
local answer = { now, unrung and 1 or 0 }
local list = redis.call('ZRANGE', members, 0, -1, 'WITHSCORES')
-- All are looked for at once, in bounded chunks: one call for each member would make up most of what a large ring costs
-- while nothing happens.
for first = 1, #list, 1000 do
  local last, channels = math.min(first + 999, #list), {}
  for i = first, last, 2 do
    channels[#channels + 1] = ARGV[1] .. list[i]
  end
  local subscribers = redis.call('PUBSUB', 'NUMSUB', unpack(channels))
  for i = first, last, 2 do
    local state = state_of(tonumber(list[i + 1]), subscribers[i - first + 2] == 0, lease, now)
    if state ~= 'well' then
      answer[#answer + 1] = list[i]
      answer[#answer + 1] = state
    end
  end
end
return answer
