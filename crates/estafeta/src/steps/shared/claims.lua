-- The two halves of `turn` and `take`: whether the caller's settle still has to be applied, and what the caller gets
-- next.

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

-- If a guess about sizes turns out wrong, the caller gets a few elements or this many bytes. If packs and single
-- messages wait side by side, it gets at most `looks` elements. In full packs those hold more messages than any caller
-- wants.
local few, budget, looks = 32, 2097152, 100

-- Returns how many elements, from the head, make up to `want` messages, and how many messages those are. Loose messages
-- come first, then as many packs as fit. A pack larger than `want` is opened first, and its messages are then loose.
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

-- Moves up to `want` messages into the caller's empty list. Returns the number of elements, and how many more messages
-- than elements those hold. Elements pass through Lua only if that is unavoidable: converting them to Lua strings and
-- back costs more than all the rest. Callers ask for about 1 MiB, by the size of what they had before. If that guess is
-- wrong, they get only a few elements, so that their memory use does not depend on the content of the queue.
--
-- `queue` names the list and holds its number of elements (length) and how many more messages than elements it has
-- (packed). It also holds how many elements at its head are known to be single messages (loose). Afterwards it
-- describes what is left. A caller that has already seen the first element passes it as well (head).
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
