-- publish: appends messages to the queue and extends the caller's lease, if it is the generator of exactly this epoch.
-- KEYS   members member ledger ready [ticks checkpoint open schedule [later delayed key...]]
-- ARGV   incarnation epoch n first-id interval-ms catch-up(0|1) max-waiting limit lease-ms late-ms wakeup-prefix count
-- ARGV   intervals [moves(0|1) checkpoint ticks entry plan {name tick-ms}... {name definition}...]
-- ARGV   {[key-number fingerprint window-ms delay-ms] element}...
--        n: the number of earlier publishes in this term. first-id: the id after the last one that the caller knows.
--        The elements are numbered from there. limit 0: no limit. late-ms: a tick that is later than this was missed.
--        count: how many messages the elements hold. intervals: by how many intervals the next tick moves on, 0 if it
--        stays. What follows in brackets comes with its keys, if this publish moves the checkpoint (`moves`) or
--        something of a schedule. ticks: how many last ticks of entries. entry: the messages are open messages of this
--        entry, unless it is empty. plan: how many definitions of entries replace those that are stored, or empty if
--        these stay. If messages have keys or delays, each element holds one message, and four arguments come before
--        it, which mean the same as in `submit`.
-- Answer {'published', first-id, due, now} · {'already', first-id, due, now} (the first try arrived, its reply was
--        lost) · {'behind'} (Redis has lost messages that the caller knows) · {'full', now} · {'limit', published} ·
--        {'paused', now, end} · {'fenced'} · {'reused', positions} (these messages have keys of others)
--        If messages have keys or delays, the first two answers end with the duplicates: `position id` and a space for
--        each message whose key was taken by an equal one, which has this id. The others have consecutive ids.
-- Invariant: ids are 1, 2, 3 ... for all publishers. Only lost messages leave gaps. A checkpoint and what belongs to a
-- schedule move together with their messages, or not at all. While a key is taken, no other message is published with
-- it. A refusal writes nothing, except that a fenced one is counted.
local members, member, ledger, ready = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ticks, checkpoint, open, schedule, later, delayed = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
-- To add 0 takes half the time of `tonumber`.
local me, n, interval, limit = ARGV[1], ARGV[3] + 0, ARGV[5] + 0, ARGV[8] + 0
local known, count, first, first_tick = ARGV[4] - 1, ARGV[12] + 0, 14, 19

local queue, published, term, sent, due = read_queue(ready, ledger, 'published', 'epoch', 'sent', 'due')
local now = now_ms()
sent, due = tonumber(sent), tonumber(due)
-- A term whose fields were partly deleted is over as well. `lead` begins the next one.
if queue.generator ~= me or term ~= ARGV[2] or not sent or not due or sent < n then
  redis.call('HINCRBY', ledger, 'fenced', 1)
  return { 'fenced' }
end
if sent > n then
  -- The ids were those of the call, unless the term's last change of ids was in this publish.
  local renumbered = redis.call('HGET', ledger, 'renumbered') or ''
  local epoch, changed, id, others = string.match(renumbered, '^(%d+) (%d+) (%d+) ?([%d ]*)$')
  local is_this = epoch == ARGV[2] and changed == ARGV[3]
  return { 'already', tonumber(is_this and id or ARGV[4]), due, now, later and (is_this and others or '') or nil }
end
published = number_of(published, ledger)
if published < known then
  return { 'behind' }
elseif queue.producing ~= 0 then
  return { 'paused', now, queue.producing }
end
local first_definition, entry, plan, stale = nil, '', nil, nil
if ticks then
  entry, plan, stale = ARGV[17], tonumber(ARGV[18]), {}
  first_definition = first_tick + 2 * ARGV[16]
  first = first_definition + 2 * (plan or 0)
end
local elements, at_once, duplicates, draft, born = ARGV, count, '', nil, nil
if later then
  local rare = rarely()
  born = checked(redis.call('HGET', ledger, 'born'), ledger) or text(now)
  draft = rare.drafts(later, delayed, 10, born)
  elements = {}
  local position, next_id, reused = 1, published + 1, {}
  for i = first, #ARGV, 5 do
    local number, after, id = tonumber(ARGV[i]), tonumber(ARGV[i + 3]), nil
    if number > 0 then
      id = draft.take_key(number, ARGV[i + 1], ARGV[i + 2] + after, next_id)
    end
    if id == false then
      reused[#reused + 1] = position
    elseif id then
      duplicates = duplicates .. position .. ' ' .. id .. ' '
    else
      local element = { ARGV[i + 4] }
      renumber(element, 1, next_id - known - position)
      if after > 0 then
        draft.postpone(next_id, element[1], after)
      else
        elements[#elements + 1] = element[1]
      end
      next_id = next_id + 1
    end
    position = position + 1
  end
  if #reused > 0 then
    return { 'reused', table.concat(reused, ' ') }
  end
  first, count = 1, next_id - published - 1
  -- What waits for a time does not wait in the queue.
  at_once = count - #draft.postponed
end
if count > 0 and limit > 0 and published + count > limit then
  return { 'limit', published }
elseif at_once > 0 and count_of(queue) + at_once > tonumber(ARGV[7]) then
  return { 'full', now }
end
local facts = check_counts(member, 'number', 'generated')
if draft then
  draft.check()
end
if ticks then
  redis.call('HGET', ticks, '')
  redis.call('GET', checkpoint)
  -- What is stored for this entry belongs to messages that are lost. Otherwise the tick would have no messages.
  local stored = entry ~= '' and redis.call('HGETALL', open) or {}
  for i = 1, #stored, 2 do
    stale[#stale + 1] = stored[i + 1] == entry and stored[i] or nil
  end
  if plan then
    redis.call('HGET', schedule, '')
  end
end

-- A tick further off than one interval is left over from a clock that jumped back.
if interval > 0 then
  due = math.min(due, now + interval)
end
-- The ticks keep their phase. Missed ticks are made up for one by one or skipped, as `catch-up` decides. A tick
-- that is at most `late-ms` late does not count as missed, and is always made up for.
if interval > 0 and ARGV[13] ~= '0' then
  due = due + interval * ARGV[13]
  if ARGV[6] == '0' and due < now - tonumber(ARGV[10]) then
    due = due + interval * (math.floor((now - due) / interval) + 1)
  end
end
-- This is the first write, because it fails by itself if its key is of another type.
redis.call('ZADD', members, 'XX', text(now + tonumber(ARGV[9])), me)
local was_empty = queue.length == 0
-- Publishers outside the ring were faster, so the ids of these messages are taken. The caller does not need to try
-- again: it learns the ids from the answer.
if published > known and not draft then
  renumber(ARGV, first, published - known)
end
if published > known or duplicates ~= '' then
  local others = duplicates ~= '' and ' ' .. duplicates or ''
  redis.call('HSET', ledger, 'renumbered', ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. text(published + 1) .. others)
end
push(queue, elements, first, at_once)
if draft then
  draft.write(queue, now)
  redis.call('HSET', ledger, 'born', born)
end
if ticks and ARGV[14] == '1' then
  redis.call('SET', checkpoint, ARGV[15])
end
if first_definition and first_definition > first_tick then
  redis.call('HSET', ticks, unpack(ARGV, first_tick, first_definition - 1))
end
if entry ~= '' then
  local opened = {}
  for id = published + 1, published + count do
    opened[#opened + 1], opened[#opened + 2] = text(id), entry
  end
  push_all('HDEL', open, stale)
  push_all('HSET', open, opened)
end
if plan then
  redis.call('DEL', schedule)
end
if plan and plan > 0 then
  redis.call('HSET', schedule, unpack(ARGV, first_definition, first_definition + 2 * plan - 1))
end
-- If messages waited before, a member was called for them, and it calls the next one. In a pause, no member was called.
-- The first in line must know of an earlier time.
if was_empty or queue.ends or queue.soonest ~= queue.stored then
  wake_one(queue, ARGV[11])
end
save_queue(queue, 'published', text(published + count), 'sent', text(n + 1), 'due', text(due))
-- The generator's registration may have been deleted. The generator still leads. But a hash that holds only a count
-- would belong to no member, and nothing would ever remove it.
if facts[1] then
  redis.call('HINCRBY', member, 'generated', count)
end
return { 'published', published + 1, due, now, draft and duplicates or nil }
