-- A waiting message is `id epoch attempt published-ms body`, an error is
-- `id epoch attempt published-ms failed-ms member reason-bytes reason body`. The functions below read and write both.

-- Splits a message into header numbers and body. What is not one of ours (somebody pushed into our list) becomes
-- message 0 whose body is the whole element, so that it can be looked at and never blocks a lane.
local function split_message(element)
  local first, last, id, epoch, attempt, published = string.find(element, '^(%d+) (%d+) (%d+) (%d+) ')
  if not first then
    return '0', '0', '0', '0', element
  end
  return id, epoch, attempt, published, string.sub(element, last + 1)
end

local function join_message(id, epoch, attempt, published, body)
  return table.concat({ id, epoch, attempt, published, body }, ' ')
end

local function error_element(element, failed_ms, member, reason)
  local id, epoch, attempt, published, body = split_message(element)
  return table.concat({ id, epoch, attempt, published, failed_ms, member, #reason, reason, body }, ' ')
end

-- The message of an error, as new: its count of attempts starts afresh. nil if the element is not one of ours.
local function retried_message(element)
  local first, last, id, epoch, published, reason = string.find(element, '^(%d+) (%d+) %d+ (%d+) %d+ %d+ (%d+) ')
  return first and join_message(id, epoch, '1', published, string.sub(element, last + tonumber(reason) + 2))
end

-- Pushes any number of elements: `unpack` has a limit, so they go in bounded chunks.
local function push_all(command, key, elements)
  for first = 1, #elements, 500 do
    redis.call(command, key, unpack(elements, first, math.min(first + 499, #elements)))
  end
end
