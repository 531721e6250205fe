-- A waiting message is `id epoch attempt published-ms body`. An error is
-- `id epoch attempt published-ms failed-ms member reason-bytes reason body`. The functions below read and write both.

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
