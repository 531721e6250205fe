-- The queue and the lists of claimed messages. Messages travel in packs, and this is the only piece that knows it:
-- scripts push, claim, settle, give back and count messages.
--
-- An element of a list is one message or a pack. A pack holds messages of one publish whose ids are consecutive:
-- `*id epoch published-ms count` and a space, then `bytes:body` for each. A script opens a pack if a lane wants fewer
-- messages, settles only a part or with failures, or if the messages return to the queue. A message that was delivered
-- before is therefore never in a pack.
--
-- To count messages without reading them, a list is stored with how many more messages than elements it has (packed).
-- The queue is also stored with how many elements at its head are known to be single messages (loose), and with how
-- many of its messages have deaths and travel alone (alone).

-- If the estimate of sizes was wrong, a lane gets at most `few` elements, or packs of up to `budget` bytes. If packs
-- and single messages are mixed, it gets at most `looks` elements beyond the loose ones. In full packs those hold more
-- messages than any lane wants.
local few, budget, looks = 32, 2097152, 100

-- The functions that look into packs. Redis spends time on every function that a script defines, and most calls meet no
-- pack. So they are defined only when a script needs one of them.
local function packs()
  -- How many messages an element claims to hold.
  local function size_of(element)
    return math.max(tonumber(string.match(element, '^%*%d+ %d+ %d+ (%d+) ')) or 1, 1)
  end

  -- The messages of a pack, each as a separate element. Returns nil if the element is not a pack, or a broken one.
  -- Numbers have at most 15 digits: neither lanes nor Lua count exactly beyond.
  local function open(element)
    local _, at, id, epoch, published, count = string.find(element, '^%*(%d+) (%d+) (%d+) (%d+) ')
    if not at or math.max(id + count, epoch, published) > 999999999999999 then
      return nil
    end
    local messages, rest = {}, ' ' .. epoch .. ' ' .. published .. ' 0 0 0 0 0 '
    for i = 0, tonumber(count) - 1 do
      local _, colon, bytes = string.find(element, '^(%d+):', at + 1)
      at = colon and colon + tonumber(bytes)
      if not at or at > #element then
        return nil
      end
      messages[i + 1] = text(tonumber(id) + i) .. rest .. string.sub(element, colon + 1, at)
    end
    return at == #element and #messages > 0 and messages or nil
  end

  -- Returns how many elements, from the head, make up to `want` messages, and how many messages those are. Loose
  -- messages come first, then as many packs as fit. A pack larger than `want` is opened first, and its messages are
  -- then loose.
  local function fit(queue, want)
    local elements = math.min(queue.loose, want, queue.length)
    local messages, bytes, last = elements, 0, math.min(elements + looks, queue.length)
    while elements < last and messages < want do
      local element = elements == 0 and queue.head or redis.call('LINDEX', queue.key, elements)
      local size = size_of(element)
      bytes = bytes + #element
      if elements > 0 and (messages + size > want or bytes > budget) then
        break
      elseif size > want then
        local singles = open(element)
        if singles then
          redis.call('LTRIM', queue.key, 1, -1)
          push_all('LPUSH', queue.key, reversed(singles))
          queue.length, queue.packed = queue.length + #singles - 1, queue.packed - #singles + 1
          queue.loose = #singles
          return want, want
        end
        size = 1
      end
      elements, messages = elements + 1, messages + size
    end
    return elements, messages
  end

  return { open = open, fit = fit, size_of = size_of }
end

-- Reads the queue and checks its counts. `...` names further counts of the ledger that the script needs. They are read
-- in the same call and returned after the queue.
local function read_queue(ready, ledger, ...)
  local counts = check_counts(ledger, 'packed', 'loose', 'alone', ...)
  local queue = { key = ready, ledger = ledger, length = redis.call('LLEN', ready), packed = 0, loose = 0, alone = 0,
    stored_alone = tonumber(counts[3] or 0) }
  -- An empty queue has no packs, whatever was counted.
  if queue.length > 0 then
    queue.packed, queue.loose = math.max(tonumber(counts[1] or 0), 0), math.max(tonumber(counts[2] or 0), 0)
    queue.alone = math.max(queue.stored_alone, 0)
  end
  return queue, unpack(counts, 4)
end

-- Stores the counts of the queue. `...` are further fields of the ledger and their values.
local function save_queue(queue, ...)
  redis.call('HSET', queue.ledger, 'packed', queue.packed, 'loose', queue.loose, ...)
  -- Deaths are rare, so this count seldom changes.
  if queue.alone ~= queue.stored_alone then
    redis.call('HSET', queue.ledger, 'alone', queue.alone)
  end
end

-- How many messages wait in a queue, or lie in a list that `read_list` returned.
local function count_of(list)
  return list.length + list.packed
end

-- Appends elements from index `from` on. They hold `messages` messages.
local function push(queue, elements, from, messages)
  push_all('RPUSH', queue.key, elements, from)
  local added = #elements - from + 1
  queue.length, queue.packed = queue.length + added, queue.packed + messages - added
end

-- Puts messages that were claimed before at the head of the queue. `alone` of them have deaths.
local function give_back(queue, messages, alone)
  push_all('LPUSH', queue.key, reversed(messages))
  queue.length, queue.alone = queue.length + #messages, queue.alone + alone
end

-- Reads all messages of a list.
local function read_messages(list)
  local messages, open = {}, packs().open
  for _, element in ipairs(redis.call('LRANGE', list.key, 0, -1)) do
    for _, message in ipairs(open(element) or { element }) do
      messages[#messages + 1] = message
    end
  end
  list.messages, list.packed = messages, #messages - list.length
end

-- The list of a lane. `packed` is the count that is stored with it. If the count is gone, the messages are read.
local function read_list(key, packed)
  local list = { key = key, length = redis.call('LLEN', key), packed = 0 }
  if list.length > 0 and packed then
    list.packed = math.max(tonumber(packed) or 0, 0)
  elseif list.length > 0 then
    read_messages(list)
  end
  return list
end

-- Returns whether to apply the settle of `n` that started at `cursor`. It is false if the settle was applied before,
-- and nil if the caller's view of its state is wrong.
local function to_settle(stored, cursor, n, held)
  if stored == cursor + n then
    return false
  elseif stored == cursor and held >= n then
    return true
  end
  return nil
end

-- Removes the first `n` messages of a list. Either `n` is the whole list, or the caller has read its messages.
local function settle(list, n)
  redis.call('DEL', list.key)
  push_all('RPUSH', list.key, list.messages or {}, n + 1)
  list.length, list.packed = count_of(list) - n, 0
end

-- Returns how many of the `want` messages the lane may claim. A message with deaths is claimed alone, and so is a
-- foreign element at the head of the queue. If it kills its handlers, it takes no other messages along. A message with
-- deaths may stand anywhere in the queue. As long as there is one, a claim ends before the first of them.
local function allowed(queue, want)
  if want == 0 or queue.length == 0 or (queue.alone == 0 and (want == 1 or queue.length == 1)) then
    return want
  end
  local deadly = '^%d+ %d+ %d+ %d+ %d+ 0*[1-9]%d* %d+ %d+ '
  queue.head = redis.call('LINDEX', queue.key, 0)
  if string.find(queue.head, deadly) then
    queue.alone = math.max(queue.alone - 1, 0)
    return 1
  elseif not string.find(queue.head, '^%*') and not string.find(queue.head, '^%d+ %d+ %d+ %d+ %d+ 0+ %d+ %d+ ') then
    return 1
  elseif queue.alone == 0 then
    return want
  end
  local element, elements, messages, bytes, size_of = queue.head, 0, 0, 0, packs().size_of
  while element and messages < want and elements < looks and bytes <= budget and not string.find(element, deadly) do
    messages = messages + (queue.packed > 0 and elements >= queue.loose and size_of(element) or 1)
    elements, bytes = elements + 1, bytes + #element
    element = redis.call('LINDEX', queue.key, elements)
  end
  return math.min(want, messages)
end

-- Moves up to `want` messages into the caller's empty list. Returns the number of elements, and how many more messages
-- than elements those hold. Elements pass through Lua only if that is unavoidable: converting them to Lua strings and
-- back costs more than all the rest. Callers ask for about 1 MiB, by the size of what they had before. If that guess is
-- wrong, they get only a few elements, so that their memory use does not depend on the content of the queue.
--
-- Afterwards `queue` describes what is left.
local function claim(queue, inflight, want)
  local from, length, surplus = queue.key, queue.length, queue.packed
  if math.min(want, length) == 0 then
    return 0, 0
  end
  if length + surplus <= want and (length <= few or redis.call('MEMORY', 'USAGE', from, 'SAMPLES', 0) <= budget) then
    redis.call('RENAME', from, inflight)
    queue.length, queue.packed, queue.loose = 0, 0, 0
    return length, surplus
  end
  local count, messages = math.min(want, length), nil
  if queue.packed > 0 then
    count, messages = packs().fit(queue, want)
  elseif count > few and redis.call('MEMORY', 'USAGE', from) / length * count > budget then
    -- A sample of the queue's head is measured before anything large is copied. What was copied is then measured
    -- exactly.
    count = few
  end
  -- SORT without an order copies a range of the list. LMOVE would return what it moves, and that costs more.
  redis.call('SORT', from, 'BY', 'nosort', 'LIMIT', 0, count, 'STORE', inflight)
  if not messages and count > few and redis.call('MEMORY', 'USAGE', inflight, 'SAMPLES', 0) > budget then
    count = few
    redis.call('SORT', from, 'BY', 'nosort', 'LIMIT', 0, count, 'STORE', inflight)
  end
  redis.call('LTRIM', from, count, -1)
  surplus = math.max((messages or count) - count, 0)
  queue.length, queue.loose = queue.length - count, math.max(queue.loose - count, 0)
  queue.packed = queue.length > 0 and math.max(queue.packed - surplus, 0) or 0
  return count, surplus
end
