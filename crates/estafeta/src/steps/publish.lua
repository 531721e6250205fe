-- publish: appends messages to the queue and extends the caller's lease, if it is the generator of exactly this epoch.
-- KEYS   members member ledger ready [ticks checkpoint]
-- ARGV   incarnation epoch n first-id interval-ms catch-up(0|1) max-waiting limit lease-ms late-ms wakeup-prefix count
-- ARGV   intervals [moves(0|1) checkpoint ticks {name tick-ms}...] element...
--        n: the number of earlier publishes in this term. first-id: the id after the last one that the caller knows.
--        The elements are numbered from there. limit 0: no limit. late-ms: a tick that is later than this was missed.
--        count: how many messages the elements hold. intervals: by how many intervals the next tick moves on. What
--        follows in brackets comes with its keys, if this publish moves the checkpoint (`moves`) or the last ticks of
--        schedule entries. ticks: how many of them.
-- Answer {'published', first-id, due, now} · {'already', first-id, due, now} (the first try arrived, its reply was
--        lost) · {'behind'} (Redis has lost messages that the caller knows) · {'full', now} · {'limit', published} ·
--        {'paused', now, end} · {'fenced'}
-- Invariant: ids are 1, 2, 3 ... in the order of the queue, for all publishers. Only lost messages leave gaps. A
-- checkpoint and ticks move together with their messages, or not at all. A refusal writes nothing, except that a fenced
-- one is counted.
local members, member, ledger, ready, ticks, checkpoint = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
-- To add 0 takes half the time of `tonumber`.
local me, n, interval, limit = ARGV[1], ARGV[3] + 0, ARGV[5] + 0, ARGV[8] + 0
local known, count, first_tick, first = ARGV[4] - 1, ARGV[12] + 0, 17, 14

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
if ticks then
  redis.call('HGET', ticks, '')
  redis.call('GET', checkpoint)
  first = first_tick + 2 * ARGV[16]
end

-- A tick further off than one interval is left over from a clock that jumped back.
if interval > 0 then
  due = math.min(due, now + interval)
end
-- The ticks keep their phase. Missed ticks are made up for one by one or skipped, as `catch-up` decides. A tick
-- that is at most `late-ms` late does not count as missed, and is always made up for.
if interval > 0 then
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
if ticks and first > first_tick then
  redis.call('HSET', ticks, unpack(ARGV, first_tick, first - 1))
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
