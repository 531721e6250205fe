-- Leaves the office empty; the time of the next tick stays, so that the successor keeps the beat.
local function vacate(leader, number)
  redis.call('HDEL', leader, 'member', 'number')
  redis.call('HSET', leader, 'last', number)
end

-- Tells the first in the line of succession that the office is empty, so that a clean stop costs no time.
local function call_heir(succession, channels, leaving)
  for _, heir in ipairs(redis.call('ZRANGE', succession, 0, 1)) do
    if heir ~= leaving then
      redis.call('PUBLISH', channels .. heir, 'office')
      return
    end
  end
end
