-- Fails unless a stored count is written as Redis writes one. Otherwise HINCRBY would refuse it halfway through a step.
-- Lua does not count exactly beyond 15 characters, and no ring gets that far.
local function checked(count)
  if count and count ~= '0' and (#count > 15 or not string.find(count, '^%-?[1-9]%d*$')) then
    error({ err = 'WRONGTYPE a count is not a number' })
  end
  return count
end

-- Reads and checks counts that the script is about to change or calculate with.
local function check_counts(hash, ...)
  local counts = redis.call('HMGET', hash, ...)
  for _, count in ipairs(counts) do
    checked(count)
  end
  return counts
end
