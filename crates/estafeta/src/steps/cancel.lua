-- cancel: takes a message back that was published with a delay, if it has not gone to the queue yet.
-- KEYS   schema requires application ledger later delayed open publisher [key]
-- ARGV   oldest newest known-words application sequence memory-ms id
--        application, sequence, memory-ms: as in `submit`. id: which message. It is 0 if a key names the message.
-- Answer {'cancelled', is-cancelled(0|1)} · {'already', is-cancelled} (the first try arrived, its reply was lost) ·
--        {'late'} · {'schema', theirs} · {'requires', word} · {'application', theirs}
-- Invariant: a message that is cancelled was in no hand and never will be. It counts as cancelled, and keeps no
-- schedule entry open. A message that waits for another delivery is not cancelled. The key by which a message was
-- cancelled is free again.
local ledger, later, delayed, open, publisher, key = KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local sequence = tonumber(ARGV[5])

local layout, _, refusal = admit(KEYS[1], KEYS[2], KEYS[3], ARGV[4], ARGV[1], ARGV[2], ARGV[3], '')
if refusal then
  return refusal
end
local last, outcome = read_memory(publisher, '^(%d+) (%d+) ([%d ]*)$')
if last and tonumber(last) > sequence then
  return { 'late' }
elseif last and tonumber(last) == sequence then
  return { 'already', tonumber(outcome) }
end
-- Without a ring there is nothing to cancel, and nothing begins one.
if not layout then
  return { 'cancelled', 0 }
end
local counts = check_counts(ledger, 'cancelled', 'soonest', 'born')
local id = ARGV[7]
if key then
  local its_id, its_ring = read_memory(key, '^(%d+) (%d+) (%x+)$')
  id = its_ring == counts[3] and its_id or '0'
end
local name = later_name(id)
redis.call('ZCARD', later)
local element = redis.call('HGET', delayed, name)
-- A message that was delivered before waits for its next attempt, or was snoozed.
local is_cancelled = element and string.find(element, '^%d+ %d+ %d+ 0 ') and 1 or 0
local ended = is_cancelled == 1 and entry_ids(open, { element }) or {}

redis.call('SET', publisher, ARGV[5] .. ' ' .. is_cancelled .. ' ', 'PX', ARGV[6])
if is_cancelled == 1 then
  redis.call('ZREM', later, name)
  redis.call('HDEL', delayed, name)
  if #ended > 0 then
    redis.call('HDEL', open, ended[1])
  end
  if key then
    redis.call('DEL', key)
  end
  -- The first in line may know an earlier time. Then it makes a turn too early, and learns the next time.
  redis.call('HSET', ledger, 'cancelled', text(tonumber(counts[1] or 0) + 1), 'soonest', text(read_soonest(later)))
end
return { 'cancelled', is_cancelled }
