-- turn: the step by which a node handles messages. Settles what its lanes have handled, then claims for its free lanes.
-- KEYS   member ready ledger errors later delayed singles open [journal]
-- KEYS   {to-schema to-requires to-application to-ledger to-ready}... key...
-- ARGV   incarnation number try cursor n seen want each reserve listens(0|1) both(0|1) stuck
-- ARGV   wakeup-prefix whole returns parts others journal(0|1) suspect(0|1)
-- ARGV   name... name... {name settled back index... index...}... {name index outcome after-ms detail}...
-- ARGV   rings oldest newest known-words {ring to-wakeup-prefix to-application}...
-- ARGV   {name index effect key-number option count value...}...
--        number: the one that `join` returned, which differs if a late `join` brings a former identity back. try: grows
--        with every try, including repeats. cursor: messages that this member had let go of before. n: how many it lets
--        go of now. seen: the last claim that it was told of. want: how many messages its free lanes want. each: how
--        many of them one lane wants. reserve: how many more it takes if many wait. listens: whether it can be called.
--        both: whether it claims even while it is the generator. stuck: how many of its lanes are stuck, or empty if
--        that is known. suspect: whether it holds a message that several members died with. Then follow the names of
--        `whole` elements that it settles and of elements that it `returns` to the queue, both whole. Then `parts` of
--        packs, with the indexes (from 0) of messages that it settles and of those that go back. Then come the
--        `others`, settled messages that are not done, and open messages of schedule entries that are done. The outcome
--        `fail` makes an error and counts a failure, `perish` makes one and counts a death. Their detail is the reason.
--        `retry` counts a failure, `die` counts a death, and the message waits for `after-ms`. `snooze` counts as no
--        failure. Its detail is the new headers of the message, or empty if they stay. `done` only names an open
--        message. journal: whether a journal is written and its key is given. The last arguments and keys are there
--        only if messages that are done have effects. They begin with the rings to which messages are forwarded, and
--        what the caller knows of layouts. Each effect is `set`, `add`, `append`, `result` or `forward`. key-number:
--        which of the keys it changes, or which of the rings gets the message. option: the time to live in ms of a
--        value (0: for ever), or the length to which a stream is cut (0: not). Effects of one message follow one
--        another.
-- Answer {'turn', cursor, claimed, waits(0|1), due-ms, paused(0|1), {name, element}...}: the claims after `seen`,
--        whether more messages wait for a turn, when the caller makes one because a pause ends, the rate allows it or a
--        message is due (-1: it need not), and whether handling is paused ·
--        {'bad', messages, cursor ...}: the same, but effects of some messages were bad, so that these became errors:
--        `position bytes reason` for each. Positions count the messages with effects from 1 · {'lost'} · {'late'}
-- Invariant: only the member that holds messages settles them. However often a call is repeated, its settle is applied
-- once, and its claims are shown until the member has seen them. A try that its own repeat overtook does nothing. The
-- effects of a message are applied with the settle that makes it done, all of them or none. A claimed message frees its
-- single name. An open message is no longer open after the settle that gives it its outcome.
local member, ready, ledger, errors, later, delayed, singles, open =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
-- To add 0 takes half the time of `tonumber`.
local me, try, cursor, n, seen = ARGV[1], ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0, ARGV[6] + 0
local want, each, reserve = ARGV[7] + 0, ARGV[8] + 0, ARGV[9] + 0
local first_name, whole, returns, parts = 20, ARGV[14] + 0, ARGV[15] + 0, ARGV[16] + 0
local journal = ARGV[18] == '1' and KEYS[9]
local has_effects = #KEYS > (journal and 9 or 8)

local rare
local own = redis.call('HMGET', member, 'number', 'try', 'cursor', 'claimed', 'held')
if own[1] ~= ARGV[2] then
  return { 'lost' }
end
if try <= number_of(own[2], member) then
  return { 'late' }
end
local gone, claimed = number_of(own[3], member), number_of(own[4], member)
local held = number_of(own[5], member)
local settles = to_settle(gone, cursor, n, held)
if settles == nil or claimed < seen then
  return { 'lost' }
end
local told
if claimed > seen then
  rare = rarely()
  told = rare.claims_after(seen, redis.call('HGETALL', member))
  if #told ~= claimed - seen then
    return { 'lost' }
  end
end
local outcomes
if settles and n > 0 and (journal or #ARGV >= first_name + whole) then
  rare = rare or rarely()
  outcomes = rare.read_outcomes(member, delayed, journal, first_name, whole, returns, parts, ARGV[17] + 0)
  if not outcomes then
    return { 'lost' }
  end
  check_counts(member, 'failed', 'back')
end
local queue, done, names = read_queue(ready, ledger, 'done', 'singles')
done, names = number_of(done, ledger), number_of(names, ledger)
if names > 0 then
  redis.call('HGET', singles, '')
end
local now, apply_effects, bad = nil, nil, ''
if has_effects and outcomes then
  now = queue.now or now_ms()
  apply_effects, bad = rare.read_effects(outcomes, member, queue, outcomes.after, journal and 9 or 8, now)
  if not apply_effects then
    return { 'lost' }
  end
elseif has_effects then
  -- An earlier try of this call was applied. Its answer was lost.
  local cursor_then, bad_then = string.match(redis.call('HGET', member, 'bad') or '', '^(%d+) (.*)$')
  bad = tonumber(cursor_then) == gone and bad_then or ''
end
if outcomes and #outcomes.failures > 0 then
  check_counts(ledger, 'failed')
  redis.call('LLEN', errors)
end
local ended = outcomes and rare.ended_ids(outcomes, open)
if journal then
  redis.call('XLEN', journal)
end
local postpones = outcomes and #outcomes.postponed > 0
if postpones then
  redis.call('ZCARD', later)
  check_counts(ledger, 'retries', 'snoozes')
end
-- This step looks at the clock only for effects, for a delayed message, and for one that fails or is postponed.
if queue.soonest ~= 0 or postpones or (outcomes and #outcomes.failures > 0) then
  now = now or queue.now or now_ms()
end
local is_paused = queue.handling ~= 0
local due
if not is_paused and queue.soonest ~= 0 and queue.soonest <= now then
  rare = rare or rarely()
  due = rare.read_due(later, delayed, now)
end
-- A generator that does not handle claims nothing. If its lanes asked before it took office, the step settles what they
-- handled, and claims nothing.
if queue.generator == me and ARGV[11] == '0' then
  want, reserve = 0, 0
end

if settles and n > 0 then
  local failed, back = 0, 0
  -- Fewer than all names are there only if a foreign client has removed some. What it removed is not done.
  local in_elements = n - (outcomes and outcomes.in_parts or 0)
  local missing = in_elements - delete_elements(member, first_name, whole + returns, in_elements)
  if outcomes then
    missing = missing + outcomes.phantoms
    failed = rare.note_outcomes(outcomes, member, own[1], errors, ledger, journal, now)
    push_all('HDEL', open, ended)
    local waited = count_of(queue)
    rare.give_back(queue, outcomes.back)
    back = count_of(queue) - waited + #outcomes.postponed
  end
  if apply_effects then
    apply_effects()
  end
  if back > 0 then
    redis.call('HINCRBY', member, 'back', back)
  end
  gone, held, done = gone + n, held - n, done + n - failed - back - missing
end
-- In a pause or at a limit, a member gets fewer messages than it asked for, or none. It then stands in line.
local asked = want
if queue.room < math.huge then
  if settles and n > 0 then
    brakes().count(queue, 0, n)
  end
  want, reserve, queue.exact = math.min(want, queue.room), 0, true
end
if due or postpones then
  rare = rare or rarely()
  rare.change_later(queue, later, delayed, due, outcomes and outcomes.postponed or {}, now)
end
-- One step moves only so many messages. If more are due, the caller makes another turn.
local is_due = not is_paused and queue.soonest ~= 0 and queue.soonest <= now
local answer = { 'turn', gone, 0, 0, -1, is_paused and 1 or 0 }
local fields, taken = { 'try', ARGV[3], 'cursor', text(gone), 'claimed', '', 'held', '' }, 0
if told then
  for _, claim in ipairs(told) do
    answer[#answer + 1], answer[#answer + 2] = claim.name, claim.element
    taken = taken + tonumber(string.match(claim.name, '%*(%d+)$') or 1)
  end
else
  local got, sizes
  -- A member takes a reserve only if enough is left for the others.
  local plenty = count_of(queue) > 4 * (want + reserve)
  got, taken, sizes = claim(queue, want, each, plenty and reserve or 0, ARGV[19] == '1')
  for i, element in ipairs(got) do
    claimed = claimed + 1
    local name = claim_name(claimed, sizes[i])
    answer[#answer + 1], answer[#answer + 2] = name, element
    fields[#fields + 1], fields[#fields + 2] = name, element
  end
  held = held + taken
  if names > 0 then
    rare = rare or rarely()
    redis.call('HSET', ledger, 'singles', text(rare.free_singles(singles, got, names)))
  end
  if queue.exact then
    brakes().count(queue, taken, 0)
  end
end
fields[6], fields[8] = text(claimed), text(held)
if ARGV[12] ~= '' then
  fields[#fields + 1], fields[#fields + 2] = 'stuck', ARGV[12]
end
if bad ~= '' then
  answer[1] = 'bad'
  fields[#fields + 1], fields[#fields + 2] = 'bad', text(gone) .. ' ' .. bad
end
for first = 1, #fields, 1000 do
  redis.call('HSET', member, unpack(fields, first, math.min(first + 999, #fields)))
end
local waits = queue.room > 0 and (is_due or queue.length > 0)
stand_in_line(queue, me, ARGV[10] == '1' and taken < asked and not waits)
answer[3], answer[4] = claimed, waits and 1 or 0
answer[5] = wake_one(queue, ARGV[13], me, is_due) or -1
save_queue(queue, 'done', text(done))
if bad ~= '' then
  table.insert(answer, 2, bad)
end
return answer
