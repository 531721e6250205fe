-- take: the step by which a reader works. Removes the errors that the reader has shown, then takes the next ones.
-- KEYS   members member inflight errors ledger
-- ARGV   incarnation number cursor n want
--        number: the one that `join` returned
-- Answer {'turn', cursor, elements}: how many errors the reader holds after the step; it reads them from its list ·
--        {'lost'}
-- Invariant: an error leaves Redis only after the reader that holds it has reported that it was shown.
local members, member, inflight, errors, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local cursor, n, want = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

if not redis.call('ZSCORE', members, ARGV[1]) then
  return { 'lost' }
end
local facts = redis.call('HMGET', member, 'cursor:0', 'number')
local stored = tonumber(facts[1] or 0)
if facts[2] ~= ARGV[2] then
  return { 'lost' }
end
local held = redis.call('LLEN', inflight)
local settles = to_settle(stored, cursor, n, held)
if settles == nil then
  return { 'lost' }
end
local kept = redis.call('LLEN', errors)
check_counts(ledger, 'taken')

if settles then
  redis.call('LTRIM', inflight, n, -1)
  redis.call('HSET', member, 'cursor:0', text(stored + n))
  redis.call('HINCRBY', ledger, 'taken', n)
  stored = stored + n
  held = held - n
end
if held == 0 then
  held = claim({ key = errors, length = kept, packed = 0, loose = 0 }, inflight, want)
end
return { 'turn', stored, held }
