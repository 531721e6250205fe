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

-- Moves up to `want` elements into the caller's empty list and answers them. It stops when they have grown large, so
-- that one answer never holds more than the budget and one piece.
local function claim(from, inflight, want)
  local piece_size, budget = 32, 1048576
  local claimed, bytes = {}, 0
  while #claimed < want and bytes < budget do
    local piece = redis.call('LPOP', from, math.min(piece_size, want - #claimed))
    if not piece then
      break
    end
    redis.call('RPUSH', inflight, unpack(piece))
    for _, element in ipairs(piece) do
      claimed[#claimed + 1] = element
      bytes = bytes + #element
    end
  end
  return claimed
end
