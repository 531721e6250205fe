-- Leaves a wakeup token if messages wait and the wakeup list is empty. One token wakes one idle lane.
local function wake_one(ready, wakeup)
  if redis.call('LLEN', ready) > 0 and redis.call('LLEN', wakeup) == 0 then
    redis.call('RPUSH', wakeup, '1')
  end
end
