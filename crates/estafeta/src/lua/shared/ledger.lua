-- Fails unless a stored count is written as Redis writes one: HINCRBY would refuse it half-way otherwise. More than 15
-- characters are more than Lua counts exactly, and no ring comes that far.
local function checked(count)
  if count and count ~= '0' and (#count > 15 or not string.find(count, '^%-?[1-9]%d*$')) then
    error({ err = 'WRONGTYPE a count is not a number' })
  end
  return count
end

-- An empty queue has no packs, whatever was counted. To be said when something comes into it that is in none.
local function forget_packs(ledger)
  redis.call('HSET', ledger, 'packed', '0', 'loose', '0')
end

-- Reads counts that are about to be changed or reckoned with.
local function check_counts(hash, ...)
  local counts = redis.call('HMGET', hash, ...)
  for _, count in ipairs(counts) do
    checked(count)
  end
  return counts
end
