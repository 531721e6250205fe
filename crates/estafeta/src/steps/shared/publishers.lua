-- What the ring remembers of publishers outside it.

-- Reads a value of a publisher or of a key, whose parts the pattern captures. Returns nil if there is none. Another
-- program may have written it.
local function read_memory(key, pattern)
  local value = redis.call('GET', key)
  if not value then
    return nil
  end
  local one, two, three = string.match(value, pattern)
  if not one then
    error({ err = 'WRONGTYPE ' .. key .. ': the value is not of this ring' })
  end
  return one, two, three
end
