-- Reads counts that are about to be changed, and makes sure that they are numbers: HINCRBY would fail half-way
-- otherwise.
local function check_counts(hash, ...)
  local counts = redis.call('HMGET', hash, ...)
  for _, count in ipairs(counts) do
    if count and not string.match(count, '^%-?%d+$') then
      error({ err = 'WRONGTYPE a count is not a number' })
    end
  end
  return counts
end
