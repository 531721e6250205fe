-- Schedule entries that skip a tick while messages of an earlier one have no outcome. `open` is a hash: the id of each
-- message without an outcome, and the name of its entry. The message has that name in its first header, and is never in
-- a pack. After its outcome, its id is not in the hash again, even if it comes back because a user retried its error.

-- The ids of those of these messages that are of such an entry. Only reads.
local function entry_ids(open, elements)
  local ids = {}
  for _, element in ipairs(elements) do
    ids[#ids + 1] =
      string.match(element, '^(%d+) %d+ %d+ %d+ %d+ %d+ %d+ [1-9]%d* 14:estafeta%-entry%d+:')
  end
  if #ids > 0 then
    redis.call('HGET', open, '')
  end
  return ids
end
