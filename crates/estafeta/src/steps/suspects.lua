-- suspects: lists the members that do not look alive. It only reads; `bury` checks again before it acts.
-- KEYS   members ready ledger
-- ARGV   channel-prefix lease-ms
-- Answer {now, needs-wakeup(0|1), incarnation, state, incarnation, state ...}, state: expired absent ahead
--        needs-wakeup: messages wait, or a delayed one is due, although a member is idle and may claim. A member may
--        have been called and not acted on it.
local members, ready, ledger = KEYS[1], KEYS[2], KEYS[3]
local lease = tonumber(ARGV[2])

local now = now_ms()
local facts = redis.call('HMGET', ledger, 'idle', 'soonest', 'brakes')
local soonest = tonumber(facts[2]) or 0
local waits = redis.call('LLEN', ready) > 0 or (soonest > 0 and soonest <= now)
local queue = { room = math.huge }
if facts[3] then
  brakes().read(queue, facts[3])
end
local answer = { now, waits and queue.room > 0 and (facts[1] or '') ~= '' and 1 or 0 }
local list = redis.call('ZRANGE', members, 0, -1, 'WITHSCORES')
-- Looks up all members at once, in bounded chunks. One call per member would be most of the cost of a large idle ring.
for first = 1, #list, 1000 do
  local last, channels = math.min(first + 999, #list), {}
  for i = first, last, 2 do
    channels[#channels + 1] = ARGV[1] .. list[i]
  end
  local subscribers = redis.call('PUBSUB', 'NUMSUB', unpack(channels))
  for i = first, last, 2 do
    local state = state_of(tonumber(list[i + 1]), subscribers[i - first + 2] == 0, lease, now)
    if state ~= 'alive' then
      answer[#answer + 1] = list[i]
      answer[#answer + 1] = state
    end
  end
end
return answer
