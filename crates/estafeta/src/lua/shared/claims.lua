-- The two halves of `turn` and `take`: whether what the caller settles is still to be settled, and what it gets next.

-- Answers whether to apply the settle of `n` that started at `cursor`: true, false if it was applied before, nil if the
-- caller's picture of itself is wrong.
local function to_settle(stored, cursor, n, held)
  if stored == cursor + n then
    return false
  elseif stored == cursor and held >= n then
    return true
  end
  return nil
end

-- Where a guess about sizes turns out wrong, the caller gets a few elements or so many bytes. Where packs and single
-- messages wait side by side, it gets no more elements than `looks`; in full packs those hold more than anybody wants.
local few, budget, looks = 32, 2097152, 100

-- How many elements, from the head, make up to `want` messages, and how many messages those are: what lies loose, then
-- as many packs as fit. A pack that is larger than all that is wanted is opened first; its messages are loose then.
local function open_fitting(queue, want)
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

-- Moves up to `want` messages into the caller's empty list; answers how many elements that are, and how many messages
-- more than elements. Nothing passes through Lua on the way where it can be helped: turning elements into Lua strings
-- and back costs more than all the rest. Callers ask for about 1 MiB, by the size of what they had before; where that
-- guess turns out wrong they get a few only, so that their memory does not depend on what is in the queue.
--
-- `queue` names the list and tells how many elements it has, how many messages more than elements (packed), and how
-- many elements at its head are known to be messages that lie alone (loose). Afterwards it tells what is left. Whoever
-- has seen the first element already puts it there as well (head).
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
    count, messages = open_fitting(queue, want)
  elseif count > few and redis.call('MEMORY', 'USAGE', from) / length * count > budget then
    -- The head of the queue is looked at before anything large is copied, and what was copied for certain.
    count = few
  end
  -- SORT without an order copies a stretch of the list. LMOVE would answer what it moves, and that costs more.
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
