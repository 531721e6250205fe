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
-- Many elements at once are fewer if they seem to be large, so that a caller's memory does not depend on the queue.
local function claim(from, waiting, inflight, want)
  local few, budget = 32, 1048576
  if want > few and waiting > few then
    local size = redis.call('MEMORY', 'USAGE', from)
    want = math.max(few, math.min(want, math.floor(budget / size * waiting)))
  end
  if want == 0 or waiting == 0 then
    return waiting
  elseif waiting <= want then
    redis.call('RENAME', from, inflight)
    return 0
  end
  -- SORT without an order copies a stretch of the list.
  redis.call('SORT', from, 'BY', 'nosort', 'LIMIT', 0, want, 'STORE', inflight)
  redis.call('LTRIM', from, want, -1)
  return waiting - want
end
