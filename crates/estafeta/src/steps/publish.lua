-- publish: appends messages to the queue and extends the caller's lease, if it is the generator of exactly this epoch.
-- KEYS   members member ledger ready [ticks checkpoint open schedule]
-- ARGV   incarnation epoch n first-id interval-ms catch-up(0|1) max-waiting limit lease-ms late-ms wakeup-prefix count
-- ARGV   intervals [moves(0|1) checkpoint ticks entry plan {name tick-ms}... {name definition}...] element...
--        n: the number of earlier publishes in this term. first-id: the id after the last one that the caller knows.
--        The elements are numbered from there. limit 0: no limit. late-ms: a tick that is later than this was missed.
--        count: how many messages the elements hold. intervals: by how many intervals the next tick moves on, 0 if it
--        stays. What follows in brackets comes with its keys, if this publish moves the checkpoint (`moves`) or
--        something of a schedule. ticks: how many last ticks of entries. entry: the messages are open messages of this
--        entry, unless it is empty. plan: how many definitions of entries replace those that are stored, or empty if
--        these stay.
-- Answer {'published', first-id, due, now} · {'already', first-id, due, now} (the first try arrived, its reply was
--        lost) · {'behind'} (Redis has lost messages that the caller knows) · {'full', now} · {'limit', published} ·
--        {'paused', now, end} · {'fenced'}
-- Invariant: ids are 1, 2, 3 ... in the order of the queue, for all publishers. Only lost messages leave gaps. A
-- checkpoint and what belongs to a schedule move together with their messages, or not at all. A refusal writes nothing,
-- except that a fenced one is counted.
local members, member, ledger, ready = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ticks, checkpoint, open, schedule = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
-- To add 0 takes half the time of `tonumber`.
local me, n, interval, limit = ARGV[1], ARGV[3] + 0, ARGV[5] + 0, ARGV[8] + 0
local known, count, first = ARGV[4] - 1, ARGV[12] + 0, 14

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
  local epoch, changed, id = string.match(redis.call('HGET', ledger, 'renumbered') or '', '^(%d+) (%d+) (%d+)$')
  local is_this = epoch == ARGV[2] and changed == ARGV[3]
  return { 'already', tonumber(is_this and id or ARGV[4]), due, now }
end
published = number_of(published, ledger)
if published < known then
  return { 'behind' }
elseif queue.producing ~= 0 then
  return { 'paused', now, queue.producing }
elseif count > 0 and limit > 0 and published + count > limit then
  return { 'limit', published }
elseif count > 0 and count_of(queue) + count > tonumber(ARGV[7]) then
  return { 'full', now }
end
local facts = check_counts(member, 'number', 'generated')
local first_tick, first_definition, entry, plan, stale = 19, nil, '', nil, nil
if ticks then
  redis.call('HGET', ticks, '')
  redis.call('GET', checkpoint)
  entry, plan, stale = ARGV[17], tonumber(ARGV[18]), {}
  first_definition = first_tick + 2 * ARGV[16]
  first = first_definition + 2 * (plan or 0)
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
if published > known then
  renumber(ARGV, first, published - known)
  redis.call('HSET', ledger, 'renumbered', ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. text(published + 1))
end
push(queue, ARGV, first, count)
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
  redis.call('HSET', schedule, unpack(ARGV, first_definition, first - 1))
end
-- If messages waited before, a member was called for them, and it calls the next one. In a pause, no member was called.
if was_empty or queue.ends then
  wake_one(queue, ARGV[11])
end
save_queue(queue, 'published', text(published + count), 'sent', text(n + 1), 'due', text(due))
-- The generator's registration may have been deleted. The generator still leads. But a hash that holds only a count
-- would belong to no member, and nothing would ever remove it.
if facts[1] then
  redis.call('HINCRBY', member, 'generated', count)
end
return { 'published', published + 1, due, now }
