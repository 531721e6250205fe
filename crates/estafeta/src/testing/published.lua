-- published: reads the messages that wait in the queue or for a time. Only tests use it.
-- KEYS   ready later delayed
-- Answer {'published', {element...}, {element...}}: the queue from its head on, and delayed messages by their times.
local delayed = {}
for _, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  delayed[#delayed + 1] = redis.call('HGET', KEYS[3], name) or nil
end
return { 'published', redis.call('LRANGE', KEYS[1], 0, -1), delayed }
