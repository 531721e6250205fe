-- The line of idle members is a field of the ledger: `incarnation` and a space for each, the longest idle first. A
-- member stands in it if it has a free lane, found the queue empty or nothing that it may claim, and can be called.
-- Seeing that and standing in line are one step, so no call is missed.

-- Takes a member out of the line, or puts it at the end unless it is in the line already.
local function stand_in_line(queue, member, is_idle)
  local first, last = string.find(queue.idle, member .. ' ', 1, true)
  if is_idle and not first then
    queue.idle = queue.idle .. member .. ' '
  elseif first and not is_idle then
    queue.idle = string.sub(queue.idle, 1, first - 1) .. string.sub(queue.idle, last + 1)
  end
end

-- Calls the first member in line, if messages wait or `is_due`, unless none may be claimed. A member whose channel has
-- no subscriber is passed over: it is dead or about to reconnect, and a member that reconnects looks at the queue by
-- itself. If the caller may not use the channels, the line stays as it is, and the next sweep calls the first.
--
-- The member that is then the first in line makes the next turn without a call: when a pause ends, when the rate allows
-- a claim, or when a delayed message is due. `due MS` on its channel names the time from now in milliseconds. It is not
-- sent if the member knows the time, because it was the first before, and the time is no earlier than it was. If the
-- first is the caller `me`, the number is returned instead.
local function wake_one(queue, channels, me, is_due)
  while queue.room > 0 and (is_due or queue.length > 0) and queue.idle ~= '' do
    local first, rest = string.match(queue.idle, '^(%S*)%s?(.*)$')
    local listeners = notify(channels .. first, 'work')
    if not listeners then
      return nil
    end
    queue.idle = rest
    if listeners > 0 then
      break
    end
  end
  -- A pause without a time limit has no time to wait for.
  local alarm = queue.room == 0 and queue.opens ~= 0 and queue.opens or queue.soonest
  while alarm ~= 0 and alarm < never and queue.idle ~= '' do
    local first, rest = string.match(queue.idle, '^(%S*)%s?(.*)$')
    local is_same = string.find(queue.line, first .. ' ', 1, true) == 1
    if first ~= me and is_same and queue.known ~= 0 and alarm >= queue.known then
      return nil
    end
    local wait = math.max(alarm - (queue.now or now_ms()), 0)
    if first == me then
      return wait
    elseif notify(channels .. first, 'due ' .. text(wait)) ~= 0 then
      return nil
    end
    queue.idle = rest
  end
  return nil
end
