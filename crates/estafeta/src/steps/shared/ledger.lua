-- Fails unless a stored count is written as Redis writes one. Otherwise HINCRBY would refuse it halfway through a step.
-- Lua does not count exactly beyond 15 characters, and no ring gets that far. `key` is where the count is stored.
local function checked(count, key)
  if count and count ~= '0' and (#count > 15 or not string.find(count, '^%-?[1-9]%d*$')) then
    error({ err = 'WRONGTYPE ' .. key .. ': a count is not a number' })
  end
  return count
end

-- A stored count as a number, 0 if there is none. Fails unless it is a whole number that Lua counts exactly. That is
-- enough for a count that the script overwrites, and takes less time than `checked`.
local function number_of(count, key)
  local number = tonumber(count or 0)
  if not number or number % 1 ~= 0 or number > 999999999999999 or number < -999999999999999 then
    error({ err = 'WRONGTYPE ' .. key .. ': a count is not a number' })
  end
  return number
end

-- Reads and checks counts that the script is about to change or calculate with.
local function check_counts(hash, ...)
  local counts = redis.call('HMGET', hash, ...)
  for _, count in ipairs(counts) do
    checked(count, hash)
  end
  return counts
end
