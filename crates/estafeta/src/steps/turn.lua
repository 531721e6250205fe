-- turn: the only step of a node that handles. Settles what its lanes have handled, then claims for its free lanes.
-- KEYS   member ready ledger errors later delayed [journal]
-- ARGV   incarnation number try cursor n seen want each reserve listens(0|1) both(0|1) stuck
-- ARGV   wakeup-prefix whole returns parts
-- ARGV   name... name... {name settled back index... index...}... {name index outcome after-ms detail}...
--        number: the one that `join` returned, which differs if a late `join` brings a former identity back. try: grows
--        with every try, including repeats. cursor: messages that this member had let go of before. n: how many it lets
--        go of now. seen: the last claim that it was told of. want: how many messages its free lanes want. each: how
--        many of them one lane wants. reserve: how many more it takes if many wait. listens: whether it can be called.
--        both: whether it claims even while it is the generator. stuck: how many of its lanes are stuck, or empty if
--        that is known. Then follow the names of `whole` elements that it settles and of elements that it `returns` to
--        the queue, both whole. Then `parts` of packs, with the indexes (from 0) of messages that it settles and of
--        those that go back. Last come the settled messages that are not done. The outcome `fail` makes an error, and
--        its detail is the reason. `retry` counts a failure, and the message waits for `after-ms`. `snooze` counts as
--        no failure. Its detail is the new headers of the message, or empty if they stay. A journal is written if its
--        key is given.
-- Answer {'turn', cursor, claimed, waits(0|1), due-ms, {name, element}...}: the claims after `seen`, whether more
--        messages wait, and when the caller makes the turn that moves the next delayed messages (-1: it need not) ·
--        {'lost'} · {'late'}
-- Invariant: a settle is applied once, and a claim is told until it was seen, however often either is repeated, and
-- only by the member that holds the messages. A try that its own repeat overtook does nothing.
local member, ready, ledger, errors, later, delayed, journal =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local me, try, cursor, n, seen = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local want, each = tonumber(ARGV[7]), tonumber(ARGV[8])
local first_name, whole, returns, parts = 17, tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[16])

local own = check_counts(member, 'number', 'try', 'cursor', 'claimed', 'held', 'failed', 'back')
if own[1] ~= ARGV[2] then
  return { 'lost' }
end
if try <= tonumber(own[2] or 0) then
  return { 'late' }
end
local gone, claimed, held = tonumber(own[3] or 0), tonumber(own[4] or 0), tonumber(own[5] or 0)
local settles = to_settle(gone, cursor, n, held)
if settles == nil or claimed < seen then
  return { 'lost' }
end
local told
if claimed > seen then
  told = claims_after(seen, redis.call('HGETALL', member))
  if #told ~= claimed - seen then
    return { 'lost' }
  end
end
local outcomes
if settles and n > 0 and (journal or #ARGV >= first_name + whole) then
  outcomes = read_outcomes(member, delayed, journal, first_name, whole, returns, parts)
  if not outcomes then
    return { 'lost' }
  end
end
local queue, done = read_queue(ready, ledger, 'done')
if outcomes and #outcomes.failures > 0 then
  check_counts(ledger, 'failed')
  redis.call('LLEN', errors)
end
if journal then
  redis.call('XLEN', journal)
end
local postpones = outcomes and #outcomes.postponed > 0
if postpones then
  redis.call('ZCARD', later)
  check_counts(ledger, 'retries', 'snoozes')
end
-- Only a delayed message, and one that fails or is postponed, make this step look at the clock.
local now = (queue.soonest ~= 0 or postpones or (outcomes and #outcomes.failures > 0)) and now_ms()
local due = queue.soonest ~= 0 and queue.soonest <= now and read_due(later, delayed, now)
-- A generator that does not handle claims nothing. If its lanes asked before it took office, it settles and gets
-- nothing new.
local reserve = tonumber(ARGV[9])
if queue.generator == me and ARGV[11] == '0' then
  want, reserve = 0, 0
end

done = tonumber(done or 0)
if settles and n > 0 then
  local failed, back = 0, 0
  -- Fewer than all names are there only if a foreign client has removed some. What it removed is not done.
  local in_elements = n - (outcomes and outcomes.in_parts or 0)
  local missing = in_elements - delete_elements(member, first_name, whole + returns, in_elements)
  if outcomes then
    missing = missing + outcomes.phantoms
    failed = note_outcomes(outcomes, member, own[1], errors, ledger, journal, now)
    local waited = count_of(queue)
    give_back(queue, outcomes.back)
    back = count_of(queue) - waited + #outcomes.postponed
  end
  if back > 0 then
    redis.call('HINCRBY', member, 'back', back)
  end
  gone, held, done = gone + n, held - n, done + n - failed - back - missing
end
if due or postpones then
  change_later(queue, later, delayed, due, outcomes and outcomes.postponed or {}, now)
end
-- One step moves only so many messages. If more are due, the caller makes another turn.
local is_due = queue.soonest ~= 0 and queue.soonest <= now
local answer = { 'turn', gone, 0, 0, -1 }
local fields, taken = { 'try', ARGV[3], 'cursor', text(gone) }, 0
if told then
  for _, claim in ipairs(told) do
    answer[#answer + 1], answer[#answer + 2] = claim.name, claim.element
    taken = taken + tonumber(string.match(claim.name, '%*(%d+)$') or 1)
  end
else
  local got, sizes
  -- A member takes a reserve only if enough is left for the others.
  local plenty = count_of(queue) > 4 * (want + reserve)
  got, taken, sizes = claim(queue, want, each, plenty and reserve or 0)
  for i, element in ipairs(got) do
    claimed = claimed + 1
    local name = claim_name(claimed, sizes[i])
    answer[#answer + 1], answer[#answer + 2] = name, element
    fields[#fields + 1], fields[#fields + 2] = name, element
  end
  held = held + taken
end
fields[#fields + 1], fields[#fields + 2] = 'claimed', text(claimed)
fields[#fields + 1], fields[#fields + 2] = 'held', text(held)
if ARGV[12] ~= '' then
  fields[#fields + 1], fields[#fields + 2] = 'stuck', ARGV[12]
end
for first = 1, #fields, 1000 do
  redis.call('HSET', member, unpack(fields, first, math.min(first + 999, #fields)))
end
stand_in_line(queue, me, ARGV[10] == '1' and taken < want and queue.length == 0 and not is_due)
answer[3], answer[4] = claimed, (is_due or queue.length > 0) and 1 or 0
answer[5] = wake_one(queue, ARGV[13], me, is_due) or -1
save_queue(queue, 'done', text(done))
return answer
