-- A waiting message is `id epoch attempt published-ms body`. An error is
-- `id epoch attempt published-ms failed-ms member reason-bytes reason body`. A pack holds messages of one publish whose
-- ids are consecutive: `*id epoch 1 published-ms count` and a space, then `bytes:body` for each. The functions below
-- read and write all three.

-- How many messages an element claims to hold.
local function size_of(element)
  return math.max(tonumber(string.match(element, '^%*%d+ %d+ 1 %d+ (%d+) ')) or 1, 1)
end

-- Whether all numbers are short enough for lanes to read. Neither lanes nor Lua count exactly beyond that.
local function is_short(...)
  for _, number in ipairs({ ... }) do
    if #number > 15 then
      return false
    end
  end
  return true
end

-- The messages of a pack, each as a separate element. Returns nil if the element is not a pack, or a broken one.
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

-- Splits a message into header numbers and body. An element that the ring did not write (a foreign client pushed it)
-- becomes message 0 whose body is the whole element. It can then be inspected and never blocks a lane.
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

-- The message of an error, as new: its count of attempts starts afresh. Returns nil if the ring did not write the
-- element, which shows in a reason that does not end where its length requires.
local function retried_message(element)
  local _, last, id, epoch, published, reason = string.find(element, '^(%d+) (%d+) %d+ (%d+) %d+ %d+ (%d+) ')
  local space = last and last + tonumber(reason) + 1
  if not space or string.sub(element, space, space) ~= ' ' then
    return nil
  end
  return join_message(id, epoch, '1', published, string.sub(element, space + 1))
end

-- Pushes any number of elements: all of them, or those from index `from` on. `unpack` has a limit, so they go in
-- bounded chunks.
local function push_all(command, key, elements, from)
  for first = from or 1, #elements, 500 do
    redis.call(command, key, unpack(elements, first, math.min(first + 499, #elements)))
  end
end
