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
for i = 1, #list, 2 do
  local state = look_at(members, list[i], ARGV[1] .. list[i], true, lease, now)
  if state ~= 'well' then
    answer[#answer + 1] = list[i]
    answer[#answer + 1] = state
  end
end
return answer
