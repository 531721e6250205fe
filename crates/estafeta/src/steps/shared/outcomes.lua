-- Gives the first `n` of a lane's messages their outcome. The arguments from `first` on are pairs of an index (from 0)
-- and a reason, and name the messages that become errors. If there is a journal, it records all `n`. Returns how many
-- failed.
local function note_outcomes(messages, n, number, errors, journal, first)
  local failed, failed_ids = {}, {}
  local now = #ARGV >= first and text(now_ms())
  for i = first, #ARGV, 2 do
    local element = messages[ARGV[i] + 1]
    failed[#failed + 1] = error_element(element, 'failures', now, number, ARGV[i + 1])
    failed_ids[#failed_ids + 1] = text(id_of(element))
  end
  if journal then
    local ids = {}
    for i = 1, n do
      ids[i] = text(id_of(messages[i]))
    end
    redis.call('XADD', journal, '*', 'ids', table.concat(ids, ' '), 'errors', table.concat(failed_ids, ' '),
      'member', number)
  end
  push_all('RPUSH', errors, failed)
  return #failed
end
