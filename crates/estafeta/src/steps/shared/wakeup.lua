-- Leaves a wakeup token if messages wait and the wakeup list is empty. One token wakes one idle lane.
local function ring_bell(ready, bell)
  if redis.call('LLEN', ready) > 0 and redis.call('LLEN', bell) == 0 then
    redis.call('RPUSH', bell, '1')
  end
end
