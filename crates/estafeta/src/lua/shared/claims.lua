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

-- Moves up to `want` elements into the caller's empty list and answers how many are left. `waiting` is how many there
-- are. Nothing passes through Lua on the way: turning elements into Lua strings and back costs more than all the rest.
-- Callers ask for about 1 MiB, by the size of what they had before; where that guess turns out wrong they get a few
-- only, so that their memory does not depend on what is in the queue.
local function claim(from, waiting, inflight, want)
  local few, budget = 32, 2097152
  local count = math.min(want, waiting)
  if count == 0 then
    return waiting
  end
  -- The head of the queue is looked at before anything large is copied, and what was copied for certain.
  if count > few and redis.call('MEMORY', 'USAGE', from) / waiting * count > budget then
    count = few
  end
  if count == waiting and (count <= few or redis.call('MEMORY', 'USAGE', from, 'SAMPLES', 0) <= budget) then
    redis.call('RENAME', from, inflight)
    return 0
  end
  -- SORT without an order copies a stretch of the list.
  redis.call('SORT', from, 'BY', 'nosort', 'LIMIT', 0, count, 'STORE', inflight)
  if count > few and redis.call('MEMORY', 'USAGE', inflight, 'SAMPLES', 0) > budget then
    count = few
    redis.call('SORT', from, 'BY', 'nosort', 'LIMIT', 0, count, 'STORE', inflight)
  end
  redis.call('LTRIM', from, count, -1)
  return waiting - count
end
