-- A waiting message is `id epoch attempt published-ms body`, an error is
-- `id epoch attempt published-ms failed-ms member reason-bytes reason body`, and a pack holds messages of one publish
-- whose ids follow each other: `*id epoch 1 published-ms count` and a space, then `bytes:body` for each. The functions
-- below read and write all three.

-- How many messages an element says it holds.
local function size_of(element)
  return math.max(tonumber(string.match(element, '^%*%d+ %d+ 1 %d+ (%d+) ')) or 1, 1)
end

-- What lanes read as a number: beyond that neither they nor Lua count exactly.
local function is_short(...)
  for _, number in ipairs({ ... }) do
    if #number > 15 then
      return false
    end
  end
  return true
end

-- The messages of a pack, each as an element of its own; nil if it is no pack, or a broken one.
local function open(element)
  local _, at, id, epoch, published, count = string.find(element, '^%*(%d+) (%d+) 1 (%d+) (%d+) ')
  if not at or not is_short(id, epoch, published, count) then
    return nil
  end
  local messages, rest = {}, ' ' .. epoch .. ' 1 ' .. published .. ' '
  for i = 0, tonumber(count) - 1 do
    local _, colon, bytes = string.find(element, '^(%d+):', at + 1)
    at = colon and is_short(bytes) and colon + tonumber(bytes)
    if not at or at > #element then
      return nil
    end
    messages[i + 1] = text(tonumber(id) + i) .. rest .. string.sub(element, colon + 1, at)
  end
  return at == #element and #messages > 0 and messages or nil
end

-- All messages of a list.
local function messages_of(list)
  local messages = {}
  for _, element in ipairs(redis.call('LRANGE', list, 0, -1)) do
    for _, message in ipairs(open(element) or { element }) do
      messages[#messages + 1] = message
    end
  end
  return messages
end

local function reversed(list)
  local other = {}
  for i = #list, 1, -1 do
    other[#other + 1] = list[i]
  end
  return other
end

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

-- The message of an error, as new: its count of attempts starts afresh. nil if the element is not one of ours, which
-- shows in a reason that does not end where its length says.
local function retried_message(element)
  local _, last, id, epoch, published, reason = string.find(element, '^(%d+) (%d+) %d+ (%d+) %d+ %d+ (%d+) ')
  local space = last and last + tonumber(reason) + 1
  if not space or string.sub(element, space, space) ~= ' ' then
    return nil
  end
  return join_message(id, epoch, '1', published, string.sub(element, space + 1))
end

-- Pushes any number of elements, all or those from one on: `unpack` has a limit, so they go in bounded chunks.
local function push_all(command, key, elements, from)
  for first = from or 1, #elements, 500 do
    redis.call(command, key, unpack(elements, first, math.min(first + 499, #elements)))
  end
end
