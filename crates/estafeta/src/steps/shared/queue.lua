-- The queue and the hands of members. Messages travel in packs, and this is the only piece that knows it: scripts push,
-- claim, settle, give back and count messages.
--
-- An element is one message or a pack. A pack holds messages of one publish whose ids are consecutive:
-- `*id epoch published-ms count` and a space, then `bytes:body` for each. A script divides a pack if a member wants
-- fewer messages. It opens a pack if a member settles only some of its messages, or some of them as failures, or if the
-- messages return to the queue. A message that was delivered before is therefore never in a pack.
--
-- A hand is what one member has claimed, in the hash of that member. A member's claims are numbered 1, 2, 3 ... as long
-- as it lives, so that no number ever means two elements. A field is named after its claim: `7` is a message, `7*100` a
-- pack of 100 messages, and `7.12` the message at index 12 of pack 7, after some others of that pack were settled.
--
-- To count messages without reading them, the queue is stored with how many more messages than elements it has
-- (packed), and a hand with the number of its messages (held).

-- One step takes elements of about `budget` bytes at most, so that memory and time do not depend on the content of the
-- queue. It first takes a `few` and looks at their size. No pack has more than `most` messages. Lanes that want one
-- message each get packs of a `few`: these are soon done as a whole.
local few, most, budget = 8, 100, 2097152

-- The functions that look into packs. Redis spends time on every function that a script defines, and most calls meet no
-- pack. So they are defined only when a script needs one of them.
local function packs()
  -- How many messages an element claims to hold.
  local function size_of(element)
    local size = tonumber(string.match(element, '^%*%d+ %d+ %d+ (%d+) ') or 1)
    return size > 1 and size <= most and size or 1
  end

  -- Where each message of a pack starts, and the pack ends. Then its first id, and what all of its messages share.
  -- Returns nil if the element is not a pack, or a broken one. Numbers have at most 15 digits: neither nodes nor Lua
  -- count exactly beyond.
  local function read(element)
    local find = string.find
    local _, at, id, epoch, published, count = find(element, '^%*(%d+) (%d+) (%d+) (%d+) ')
    if not at or tonumber(count) > most or math.max(id + count, epoch, published) > 999999999999999 then
      return nil
    end
    local starts = {}
    for i = 1, tonumber(count) do
      starts[i] = at + 1
      local _, colon, bytes = find(element, '^(%d+):', at + 1)
      at = colon and colon + bytes
      if not at or at > #element then
        return nil
      end
    end
    if at ~= #element or #starts == 0 then
      return nil
    end
    starts[#starts + 1] = at + 1
    return starts, tonumber(id), ' ' .. epoch .. ' ' .. published .. ' '
  end

  -- One element with the messages of a pack from `first` to `last`.
  local function slice(element, starts, id, origin, first, last)
    local from, to = starts[first], starts[last + 1] - 1
    if first < last then
      return '*' .. text(id + first - 1) .. origin .. last - first + 1 .. ' ' .. string.sub(element, from, to)
    end
    local colon = string.find(element, ':', from, true)
    return text(id + first - 1) .. origin .. '0 0 0 0 0 ' .. string.sub(element, colon + 1, to)
  end

  -- The messages of a pack, each as a separate element. Returns nil if the element is not a pack, or a broken one.
  local function open(element)
    local starts, id, origin = read(element)
    if not starts then
      return nil
    end
    local messages = {}
    for i = 1, #starts - 1 do
      messages[i] = slice(element, starts, id, origin, i, i)
    end
    return messages
  end

  -- Divides a pack after its first `count` messages. Returns these in packs of up to `each` messages, and the rest as
  -- one pack. Returns nil if the element is not a pack, or a broken one.
  local function divide(element, count, each)
    local starts, id, origin = read(element)
    if not starts then
      return nil
    end
    local parts = {}
    for first = 1, count, each do
      parts[#parts + 1] = slice(element, starts, id, origin, first, math.min(first + each - 1, count))
    end
    return parts, slice(element, starts, id, origin, count + 1, #starts - 1)
  end

  return { size_of = size_of, open = open, divide = divide }
end

-- Reads the queue, the line of idle members, who generates, when the next delayed message is due and what is paused or
-- limited. `...` names further fields of the ledger that the script needs. They are read in the same call and returned
-- after the queue, and the script checks them. `line` and `known` are what the members know: the line before this step,
-- and when its first member had to make a turn by itself (0: never).
local function read_queue(ready, ledger, ...)
  local facts = redis.call('HMGET', ledger, 'idle', 'member', 'brakes', 'packed', 'soonest', ...)
  local idle, packed, soonest = facts[1] or '', number_of(facts[4], ledger), number_of(facts[5], ledger)
  local queue = { key = ready, ledger = ledger, length = redis.call('LLEN', ready), packed = 0, soonest = soonest,
    generator = facts[2], idle = idle, line = idle, stored = soonest, known = soonest, producing = 0, handling = 0,
    room = math.huge, opens = 0 }
  -- An empty queue has no packs, whatever was counted.
  if queue.length > 0 then
    queue.packed = math.max(packed, 0)
  end
  if facts[3] then
    brakes().read(queue, facts[3])
  end
  return queue, unpack(facts, 6)
end

-- Stores what changed of the queue. `...` are further fields of the ledger and their values.
local function save_queue(queue, ...)
  local packed = text(queue.packed)
  if queue.soonest == queue.stored then
    redis.call('HSET', queue.ledger, 'packed', packed, 'idle', queue.idle, ...)
  else
    redis.call('HSET', queue.ledger, 'packed', packed, 'idle', queue.idle, 'soonest', text(queue.soonest), ...)
  end
  if queue.brakes then
    brakes().write(queue)
  end
end

-- How many messages wait.
local function count_of(queue)
  return queue.length + queue.packed
end

-- How many messages wait, for a script that only looks. A damaged count does not stop it.
local function peek(ready, ledger)
  local length, packed = redis.call('LLEN', ready), tonumber(redis.call('HGET', ledger, 'packed')) or 0
  return length > 0 and length + math.max(packed, 0) or 0
end

-- When the first message of the queue was published. Returns nil if none waits, or if it is foreign.
local function published_of_head(ready)
  local head = redis.call('LRANGE', ready, 0, 0)[1]
  return head and tonumber(string.match(head, '^%*?%d+ %d+ (%d+) '))
end

-- Adds `shift` to the ids of elements that are not in the queue yet, from index `from` on.
local function renumber(elements, from, shift)
  for i = from, #elements do
    local star, id = string.match(elements[i], '^(%*?)(%d+)')
    elements[i] = star .. text(id + shift) .. string.sub(elements[i], #star + #id + 1)
  end
end

-- Completes an element that begins with what follows the time of its publish. It holds `count` messages, the first of
-- which gets the id `id`. Their epoch is the time at which they are published.
local function new_element(id, now, count, rest)
  return (count > 1 and '*' or '') .. text(id) .. ' ' .. now .. ' ' .. now .. ' ' .. rest
end

-- Appends elements from index `from` on. They hold `messages` messages.
local function push(queue, elements, from, messages)
  push_all('RPUSH', queue.key, elements, from)
  local added = #elements - from + 1
  queue.length, queue.packed = queue.length + added, queue.packed + messages - added
end

-- Puts elements that were claimed before at the head of the queue.
local function give_back(queue, elements)
  push_all('LPUSH', queue.key, reversed(elements))
  queue.length = queue.length + #elements
  for _, element in ipairs(elements) do
    if string.byte(element) == 42 then
      local messages = packs().open(element)
      queue.packed = queue.packed + (messages and #messages or 1) - 1
    end
  end
end

-- Removes up to `want` messages from the head of the queue, and `reserve` more. One lane gets `each` of those that are
-- wanted. Returns their elements, how many messages they hold, and the size of each pack by its position.
--
-- A lane that wants many messages may get a few more, so that a pack stays whole, unless the number is `exact` because
-- of a limit. A reserve may be a few messages larger for the same reason. Otherwise a pack that does not fit stays
-- where it is if enough is there without it, or it is divided. A message that a member died with takes the share of a
-- whole lane, and so does a foreign element. There is no reserve then. If it kills its handler, it takes as few other
-- messages along as possible.
--
-- A message that several members died with is a suspect. A member holds only one at a time, so that a message that
-- kills its members is found and the others with it are not. `has_suspect` is whether it holds one. Other suspects stay
-- at the head of the queue.
local function claim(queue, want, each, reserve, has_suspect)
  local pack, got, sizes, used, messages, bytes, next_run = nil, {}, {}, 0, 0, 0, few
  local skipped = {}
  local limit = want + reserve
  while used < limit and queue.length > 0 and bytes < budget do
    local estimate = math.ceil((limit - used) * queue.length / count_of(queue))
    local elements = redis.call('LPOP', queue.key, math.min(estimate, next_run))
    queue.length = queue.length - #elements
    local back = {}
    for _, element in ipairs(elements) do
      local size, share = 1, 1
      if string.byte(element) == 42 then
        pack = pack or packs()
        size = pack.size_of(element)
        share = size
      end
      local is_suspect, skips = false, false
      if size == 1 and not string.find(element, '^%d+ %d+ %d+ %d+ %d+ 0+ %d+ %d+ ') then
        is_suspect = tonumber(string.match(element, '^%d+ %d+ %d+ %d+ %d+ (%d+) ') or 0) > 1
        skips = is_suspect and has_suspect
        if not skips then
          share, limit = each, math.min(limit, want)
        end
      end
      local room = limit - used
      local fits = share <= room or (used == 0 and size == 1)
        or (size > 1 and each > 1 and not queue.exact and size <= 2 * room)
        or (size > 1 and size <= few and limit > want)
      if #back > 0 or used >= limit or bytes >= budget then
        back[#back + 1] = element
      elseif skips then
        skipped[#skipped + 1], bytes = element, bytes + #element
      elseif fits then
        got[#got + 1], bytes, has_suspect = element, bytes + #element, has_suspect or is_suspect
        used, messages = used + share, messages + size
        if size > 1 then
          sizes[#got], queue.packed = size, queue.packed - size + 1
        end
      else
        local divides = size > 1 and (used == 0 or (each == 1 and 2 * used < limit))
        local parts, rest
        if divides then
          parts, rest = pack.divide(element, room, math.max(each, few))
        end
        if parts then
          for _, part in ipairs(parts) do
            got[#got + 1] = part
            local held = pack.size_of(part)
            if held > 1 then
              sizes[#got] = held
            end
          end
          back[1], bytes = rest, bytes + #element
          queue.packed = queue.packed - size + pack.size_of(rest)
          used, messages = limit, messages + room
        elseif size > 1 and used == 0 then
          -- It cannot be divided, so no member will read it as a pack either.
          got[1], used, messages, bytes = element, limit, 1, #element
        else
          back[#back + 1] = element
        end
      end
    end
    if #back > 0 then
      push_all('LPUSH', queue.key, reversed(back))
      queue.length, limit = queue.length + #back, used
    end
    -- Twice as many as before, but no more than fit into what is left of the budget, by the size of the others.
    local room = math.floor((budget - bytes) * (#got + #skipped) / math.max(bytes, 1))
    next_run = math.max(math.min(2 * next_run, room, 1000), 1)
  end
  push_all('LPUSH', queue.key, reversed(skipped))
  queue.length = queue.length + #skipped
  queue.packed = queue.length > 0 and math.max(queue.packed, 0) or 0
  return got, messages, sizes
end

-- The name of a claim in its member's hand. `size` is given for a pack.
local function claim_name(number, size)
  return size and text(number) .. '*' .. size or text(number)
end

-- Reads the elements of a hand with these names. Returns them by name, and a function that returns the messages of a
-- name. Returns nil if one of the names is not in the hand.
local function read_hand(member, names)
  local elements, messages, open = {}, {}, packs().open
  for first = 1, #names, 1000 do
    local last = math.min(first + 999, #names)
    for i, element in ipairs(redis.call('HMGET', member, unpack(names, first, last))) do
      if not element then
        return nil
      end
      elements[names[first + i - 1]] = element
    end
  end
  return elements, function(name)
    messages[name] = messages[name] or open(elements[name]) or { elements[name] }
    return messages[name]
  end
end

-- All claims of a hand after the claim `seen`, in order. `fields` is all that the member's hash holds.
local function claims_after(seen, fields)
  local claims = {}
  for i = 1, #fields, 2 do
    local number = tonumber(string.match(fields[i], '^%d+'))
    if number and number > seen then
      claims[#claims + 1] = { number = number, name = fields[i], element = fields[i + 1] }
    end
  end
  table.sort(claims, function(one, other)
    return one.number < other.number
  end)
  return claims
end
