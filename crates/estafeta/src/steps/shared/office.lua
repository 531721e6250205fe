-- Leaves the office empty. The time of the next tick stays, so that the successor keeps the rhythm. The last leader is
-- remembered as long as another member can take over from it.
local function vacate(ledger, succession, number)
  redis.call('HDEL', ledger, 'member', 'number', 'last')
  redis.call('HSET', ledger, 'vacated', text(now_ms()))
  if redis.call('ZCARD', succession) > 1 then
    redis.call('HSET', ledger, 'last', number)
  end
end

-- Removes a member from the line of succession. If the office is vacant and no other member can take it over, the last
-- leader is forgotten: the next election is then a first one, and no take-over.
local function end_candidacy(ledger, succession, member)
  redis.call('ZREM', succession, member)
  if redis.call('ZCARD', succession) == 0 and not redis.call('HGET', ledger, 'member') then
    redis.call('HDEL', ledger, 'last')
  end
end

-- The place behind the last member in the line of succession.
local function end_of_line(succession)
  return tonumber(redis.call('ZRANGE', succession, -1, -1, 'WITHSCORES')[2] or 0) + 1
end

-- Notifies the first member in the line of succession that the office is empty, so that a clean stop costs no time.
local function call_heir(succession, channels, leaving)
  for _, heir in ipairs(redis.call('ZRANGE', succession, 0, 1)) do
    if heir ~= leaving then
      notify(channels .. heir, 'office')
      return
    end
  end
end
