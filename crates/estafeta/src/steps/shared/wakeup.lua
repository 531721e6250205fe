-- The line of idle members is a field of the ledger: `incarnation` and a space for each, the longest idle first. A
-- member stands in it if it has a free lane, found the queue empty, and can be called. Seeing the queue empty and
-- standing in line are one step, so no call is missed.

-- Takes a member out of the line, or puts it at the end unless it is in the line already.
local function stand_in_line(queue, member, is_idle)
  local first, last = string.find(queue.idle, member .. ' ', 1, true)
  if is_idle and not first then
    queue.idle = queue.idle .. member .. ' '
  elseif first and not is_idle then
    queue.idle = string.sub(queue.idle, 1, first - 1) .. string.sub(queue.idle, last + 1)
  end
end

-- Calls the first member in line, if messages wait or `is_due`. A member whose channel has no subscriber is passed
-- over: it is dead or about to reconnect, and a member that reconnects looks at the queue by itself.
--
-- The first member that is then in line makes the turn that moves the next delayed messages. It is told how many
-- milliseconds that is from now, unless it knows: it was the first before, and the time is no earlier than it was. If
-- the first is the caller `me`, this number is returned instead.
local function wake_one(queue, channels, me, is_due)
  while (is_due or queue.length > 0) and queue.idle ~= '' do
    local first, rest = string.match(queue.idle, '^(%S*)%s?(.*)$')
    queue.idle = rest
    if redis.call('PUBLISH', channels .. first, 'work') > 0 then
      break
    end
  end
  while queue.soonest ~= 0 and queue.idle ~= '' do
    local first, rest = string.match(queue.idle, '^(%S*)%s?(.*)$')
    local is_same = string.find(queue.line, first .. ' ', 1, true) == 1
    if first ~= me and is_same and queue.known ~= 0 and queue.soonest >= queue.known then
      return nil
    end
    local wait = math.max(queue.soonest - now_ms(), 0)
    if first == me then
      return wait
    elseif redis.call('PUBLISH', channels .. first, 'due ' .. text(wait)) > 0 then
      return nil
    end
    queue.idle = rest
  end
  return nil
end
