-- submit: publishes messages of a publisher outside the ring: all of them, or none.
-- KEYS   schema requires application ledger ready later delayed singles publisher key...
-- ARGV   oldest newest known-words application sequence memory-ms max-waiting wakeup-prefix demand
-- ARGV   {count key-number fingerprint window-ms delay-ms element}...
--        application: empty if the publisher may use any ring. demand: as in `join`.
--        sequence: grows with every publish of this publisher.
--        Repeats have the same one. memory-ms: how long the ring remembers the last publish of this publisher. count:
--        how many messages the element holds. key-number: which of the keys it has (0: none). window-ms: how long the
--        key is taken, counted from the end of the delay. delay-ms: how long the message waits before it goes to the
--        queue. Such an element is no pack. An element comes without id, epoch and time.
-- Answer {'submitted', first-id, duplicates, now} · {'already', first-id, duplicates} (the first try arrived, its reply
--        was lost) · {'reused', position} (this message has the key of another one) · {'full'} · {'paused', now, end} ·
--        {'late'} · {'schema', theirs} · {'requires', word} · {'lacks', word} · {'application', theirs}
--        duplicates: `position id` and a space for each message whose key was taken by an equal one, or whose single
--        name was taken by any, which has this id. Positions count the messages of the call from 1. The other messages
--        have consecutive ids.
-- Invariant: while a key is taken, no other message is published with it. While a message with a single name waits and
-- was never claimed, no other message is published with that name. A publish is applied once, however often it is
-- repeated, and a late one that a later publish overtook does nothing. A refusal writes nothing. The epoch of a message
-- is Redis' time. The ring's epoch would not do: after a roll-back, a lost message may have had the same id.
local schema, application, ledger, ready, later, delayed, singles, publisher =
  KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local first_key, first_element = 9, 10
local ours, sequence = ARGV[4], tonumber(ARGV[5])

local layout, theirs, refusal, adds = admit(schema, KEYS[2], application, ours, ARGV[1], ARGV[2], ARGV[3], ARGV[9])
if refusal then
  return refusal
end
local last, its_first, its_duplicates = read_memory(publisher, '^(%d+) (%d+) ([%d ]*)$')
if last and tonumber(last) > sequence then
  return { 'late' }
elseif last and tonumber(last) == sequence then
  return { 'already', tonumber(its_first), its_duplicates }
end
local queue, published, submitted, born, named =
  read_queue(ready, ledger, 'published', 'submitted', 'born', 'singles')
published = number_of(published, ledger)
checked(submitted, ledger)
checked(born, ledger)
-- In an empty queue no message has a name, whatever is stored.
named = queue.length > 0 and math.max(number_of(named, ledger), 0) or 0

local now = now_ms()
born = born or text(now)
local draft = drafts(later, delayed, first_key, born)
local elements, duplicates, waiting, marks = {}, {}, {}, {}
local position, next_id = 1, published + 1
for i = first_element, #ARGV, 6 do
  local count, number, fingerprint, after = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), ARGV[i + 2], tonumber(ARGV[i + 4])
  local id
  if number > 0 then
    id = draft.take_key(number, fingerprint, ARGV[i + 3] + after, next_id)
    if id == false then
      return { 'reused', position }
    end
  end
  local name = number == 0 and after == 0 and single_name(ARGV[i + 5], 1)
  if name then
    id = read_single(singles, name)
    id = waiting[name] or (named > 0 and id) or nil
    if not id then
      waiting[name] = text(next_id)
      marks[#marks + 1], marks[#marks + 2] = name, waiting[name]
    end
  end
  if id then
    duplicates[#duplicates + 1] = position .. ' ' .. id .. ' '
  else
    local element = new_element(next_id, text(now), count, ARGV[i + 5])
    if after > 0 then
      draft.postpone(next_id, element, after)
    else
      elements[#elements + 1] = element
    end
    next_id = next_id + count
  end
  position = position + count
end
local count = next_id - published - 1
-- What waits for a time does not wait in the queue.
local at_once = count - #draft.postponed
if count > 0 and queue.producing ~= 0 then
  return { 'paused', now, queue.producing }
elseif at_once > 0 and count_of(queue) + at_once > tonumber(ARGV[7]) then
  return { 'full' }
end
draft.check()

if not layout then
  redis.call('SET', schema, ARGV[2])
end
if adds then
  redis.call('SADD', KEYS[2], ARGV[9])
end
if not theirs and ours ~= '' then
  redis.call('SET', application, ours)
end
duplicates = table.concat(duplicates)
redis.call('SET', publisher, ARGV[5] .. ' ' .. text(published + 1) .. ' ' .. duplicates, 'PX', ARGV[6])
if #marks > 0 then
  if named == 0 then
    redis.call('DEL', singles)
  end
  redis.call('HSET', singles, unpack(marks))
  redis.call('HSET', ledger, 'singles', text(named + #marks / 2))
end
local was_empty = queue.length == 0
push(queue, elements, 1, at_once)
draft.write(queue, now)
-- If messages waited before, a member was called for them, and it calls the next one. In a pause, no member was called.
-- The first in line must know of an earlier time.
if was_empty or queue.ends or queue.soonest ~= queue.stored then
  wake_one(queue, ARGV[8])
end
save_queue(queue, 'published', text(published + count), 'submitted', text(tonumber(submitted or 0) + count), 'born',
  born)
return { 'submitted', published + 1, duplicates, now }
