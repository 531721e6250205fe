-- Names of which at most one message waits. `singles` is a hash: each name that is taken, and the id of the message
-- that took it and was never claimed. The ledger counts the names, so that a step looks at the hash only if there are
-- some. The message has its name in its first header, and is never in a pack. Its id shows whether it still has the
-- name: a message that returned to the queue does not take it again.

-- The name of a message that was never delivered, or nil. Its counts begin at index `from` of the element.
local function single_name(element, from)
  -- Without headers, the same text would be the beginning of the body.
  local _, last, bytes = string.find(element, '^0 0 0 0 [1-9]%d* 15:estafeta%-single(%d+):', from)
  return last and string.sub(element, last + 1, last + bytes)
end

-- Frees the names of these elements, which were just claimed. `taken` is how many names are taken. Returns how many of
-- them still are.
local function free_singles(singles, elements, taken)
  for _, element in ipairs(elements) do
    local _, last, id = string.find(element, '^(%d+) %d+ %d+ ')
    local name = last and single_name(element, last + 1)
    if name and redis.call('HGET', singles, name) == id then
      taken = taken - redis.call('HDEL', singles, name)
    end
  end
  return taken
end

-- The id of the message that has taken a name, or nil. Another program may have written the value.
local function read_single(singles, name)
  local id = redis.call('HGET', singles, name)
  if id and not string.find(id, '^%d+$') then
    error({ err = 'WRONGTYPE a value is not of this ring' })
  end
  return id or nil
end
