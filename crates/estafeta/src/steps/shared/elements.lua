-- A waiting message is `id epoch published-ms deliveries failures deaths snoozes header-bytes headers body`. Each
-- number is followed by a space. The headers take `header-bytes` bytes, and the body is the rest. An error is
-- `!failed-ms member reason-bytes reason message`. The counts of its message include the failure or the death that made
-- it an error.

-- Splits a message into what never changes (origin and rest) and its counts. Returns nil if a foreign client wrote the
-- element. Numbers have at most 15 digits: neither lanes nor Lua count exactly beyond.
local function split_message(element)
  local _, last, id, epoch, published, deliveries, failures, deaths, snoozes, header =
    string.find(element, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ')
  if not last or math.max(id, epoch, published, deliveries, failures, deaths, snoozes, header) > 999999999999999
    or last + header > #element then
    return nil
  end
  return { id = tonumber(id), origin = id .. ' ' .. epoch .. ' ' .. published,
    deliveries = tonumber(deliveries), failures = tonumber(failures), deaths = tonumber(deaths),
    rest = string.sub(element, last - #snoozes - #header - 1) }
end

local function join_message(message)
  return table.concat({ message.origin, text(message.deliveries), text(message.failures), text(message.deaths),
    message.rest }, ' ')
end

-- The id of a message. A foreign element has id 0.
local function id_of(element)
  local message = split_message(element)
  return message and message.id or 0
end

-- Turns a message into an error. `cause` names the count that grows by it: failures or deaths.
local function error_element(element, cause, failed_ms, member, reason)
  local message = split_message(element)
  if message then
    message[cause] = message[cause] + 1
    element = join_message(message)
  end
  return table.concat({ '!' .. failed_ms, member, #reason, reason, element }, ' ')
end

-- Turns a message that was split into one that waits for its next delivery. `cause` names the count that grows by it:
-- failures, deaths or snoozes. The `headers` of a snooze replace those of the message, unless they are empty.
local function postponed_message(message, cause, headers)
  message.deliveries = message.deliveries + 1
  if cause ~= 'snoozes' then
    message[cause] = message[cause] + 1
    return join_message(message)
  end
  local _, last, snoozes, header = string.find(message.rest, '^(%d+) (%d+) ')
  if headers == '' then
    message.rest = text(snoozes + 1) .. string.sub(message.rest, #snoozes + 1)
  else
    message.rest = text(snoozes + 1) .. ' ' .. #headers .. ' ' .. headers .. string.sub(message.rest, last + header + 1)
  end
  return join_message(message)
end

-- Turns an error back into a message. Its failures and deaths start again at 0, and its deliveries go on. Returns nil
-- if the element does not have the form of an error, for example if its reason does not have the stated length.
local function retried_message(element)
  local _, last, failed_ms, member, reason = string.find(element, '^!(%d+) (%d+) (%d+) ')
  if not last or math.max(failed_ms, member, reason) > 999999999999999 then
    return nil
  end
  local space = last + reason + 1
  if string.sub(element, space, space) ~= ' ' then
    return nil
  end
  element = string.sub(element, space + 1)
  local message = split_message(element)
  if not message then
    return element
  end
  message.deliveries, message.failures, message.deaths = message.deliveries + 1, 0, 0
  return join_message(message)
end
