-- limit: sets or removes the limits of the ring on what its members claim.
-- KEYS   schema ready ledger events members {member}...
-- ARGV   in-flight rate per-ms wakeup-prefix members-known incarnation...
--        in-flight: how many messages all members may hold together (0: any number). Empty: it stays as it is. rate:
--        how many messages they may claim in `per-ms` (0: any number). Empty: it stays as it is. The caller names the
--        members that it knows. If they are not the current members, it must ask again.
-- Answer {'limited', in-flight, rate, per-ms} · {'changed'} · {'missing'} (no such ring)
-- Invariant: the step moves no message. A repeat reports nothing. If messages wait and more of them may be claimed now,
-- the step calls an idle member.
local ledger, events, members = KEYS[3], KEYS[4], KEYS[5]
local first_member = 6

if not redis.call('GET', KEYS[1]) then
  return { 'missing' }
end
if redis.call('ZCARD', members) ~= tonumber(ARGV[5]) then
  return { 'changed' }
end
local hand = 0
for i = first_member, #ARGV do
  if not redis.call('ZSCORE', members, ARGV[i]) then
    return { 'changed' }
  end
  hand = hand + tonumber(check_counts(KEYS[i], 'held')[1] or 0)
end
local queue = read_queue(KEYS[2], ledger)
redis.call('XLEN', events)
if not queue.brakes then
  brakes().read(queue, no_brakes)
end

local most, rate, per = tonumber(ARGV[1]) or queue.most, tonumber(ARGV[2]) or queue.rate, queue.per
if ARGV[2] ~= '' then
  per = rate > 0 and tonumber(ARGV[3]) or 0
end
local is_new = most ~= queue.most or rate ~= queue.rate or per ~= queue.per
-- The count is made anew even if the limit stays. That repairs a count that is wrong because a foreign client deleted
-- what a member held.
if ARGV[1] ~= '' then
  queue.most, queue.hand = most, most > 0 and hand or 0
end
-- A new rate begins with nothing saved up.
if rate ~= queue.rate or per ~= queue.per then
  queue.rate, queue.per, queue.credit, queue.since = rate, per, 0, rate > 0 and queue.now or 0
end
if is_new then
  announce(events, 'limited', 'in-flight', most > 0 and text(most) or '', 'rate', rate > 0 and text(rate) or '', 'per',
    text(per))
end
brakes().measure(queue)
wake_one(queue, ARGV[4], nil, queue.soonest ~= 0 and queue.soonest <= queue.now)
save_queue(queue)
return { 'limited', most, rate, per }
