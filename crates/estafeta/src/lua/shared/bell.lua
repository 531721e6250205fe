-- Rings the bell if something waits and the bell is silent: one token wakes one idle lane.
local function ring_bell(ready, bell)
  if redis.call('LLEN', ready) > 0 and redis.call('LLEN', bell) == 0 then
    redis.call('RPUSH', bell, '1')
  end
end
