-- Messages that wait for a time. `later` is a sorted set of their ids by the time at which each is due, in ms of Redis'
-- clock. `delayed` is a hash of their elements by id. Ids have 15 digits here, so that Redis sorts the ids of one
-- millisecond by number. The ledger holds the earliest time (`soonest`), so that most steps read neither key.

-- The most messages that one step moves to the queue.
local moves = 100

-- The name of a message in `later` and `delayed`.
local function later_name(id)
  return string.format('%015.0f', id)
end

-- Reads the messages that are due, the earliest first, up to `moves` of them and about `budget` bytes. Only reads.
-- Returns their names and elements. An element that a foreign client has removed is missing.
local function read_due(later, delayed, now)
  local names = redis.call('ZRANGE', later, '-inf', text(now), 'BYSCORE', 'LIMIT', 0, moves)
  local due, bytes, next_run = { names = {}, elements = {} }, 0, few
  while #due.names < #names and bytes < budget do
    local first = #due.names + 1
    local last = math.min(first + next_run - 1, #names)
    for i, element in ipairs(redis.call('HMGET', delayed, unpack(names, first, last))) do
      due.names[#due.names + 1] = names[first + i - 1]
      if element then
        due.elements[#due.elements + 1], bytes = element, bytes + #element
      end
    end
    local room = math.floor((budget - bytes) * #due.elements / math.max(bytes, 1))
    next_run = math.max(math.min(2 * next_run, room), 1)
  end
  return due
end

-- The time at which the next message is due, or 0 if none waits. A foreign client may have added a time that no count
-- could hold.
local function read_soonest(later)
  local soonest = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')[2]
  return soonest and math.min(math.max(soonest, 1), 999999999999999) or 0
end

-- Moves what is `due` to the tail of the queue, and has the `postponed` messages wait. A message that waits for no time
-- goes to the tail of the queue at once.
local function change_later(queue, later, delayed, due, postponed, now)
  if due and #due.names > 0 then
    push(queue, due.elements, 1, #due.elements)
    redis.call('ZREM', later, unpack(due.names))
    redis.call('HDEL', delayed, unpack(due.names))
  end
  local times, elements, at_once = {}, {}, {}
  for _, one in ipairs(postponed) do
    if one.after > 0 then
      times[#times + 1], times[#times + 2] = text(now + one.after), one.name
      elements[#elements + 1], elements[#elements + 2] = one.name, one.element
    else
      at_once[#at_once + 1] = one.element
    end
  end
  push_all('ZADD', later, times)
  push_all('HSET', delayed, elements)
  push(queue, at_once, 1, #at_once)
  queue.soonest = read_soonest(later)
end
