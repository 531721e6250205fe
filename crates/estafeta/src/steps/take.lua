-- take: the step by which a reader works. Removes the errors that the reader has shown, then takes the next ones.
-- KEYS   members member inflight errors ledger
-- ARGV   incarnation number cursor n want
--        number: the one that `join` returned
-- Answer {'took', cursor, elements}: how many errors the reader holds after the step; it reads them from its list ·
--        {'lost'}
-- Invariant: an error leaves Redis only after the reader that holds it has reported that it was shown.
-- Callers ask for about 1 MiB, by the size of what they had before. If that guess is wrong, they get only a few errors,
-- so that their memory use does not depend on the content of the list.
local few, budget = 32, 2097152

-- Moves up to `want` errors from the head of a list into the reader's empty list. Returns how many. Errors do not pass
-- through Lua: converting them to Lua strings and back would cost more than all the rest.
local function take(errors, length, inflight, want)
  local count = math.min(want, length)
  if count == 0 then
    return 0
  end
  -- A sample of the list is measured before anything large is copied. What was copied is then measured exactly.
  if count > few and redis.call('MEMORY', 'USAGE', errors) / length * count > budget then
    count = few
  end
  -- SORT without an order copies a range of the list. LMOVE would return what it moves, and that costs more.
  redis.call('SORT', errors, 'BY', 'nosort', 'LIMIT', 0, count, 'STORE', inflight)
  if count > few and redis.call('MEMORY', 'USAGE', inflight, 'SAMPLES', 0) > budget then
    count = few
    redis.call('SORT', errors, 'BY', 'nosort', 'LIMIT', 0, count, 'STORE', inflight)
  end
  redis.call('LTRIM', errors, count, -1)
  return count
end

local members, member, inflight, errors, ledger = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local cursor, n, want = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

if not redis.call('ZSCORE', members, ARGV[1]) then
  return { 'lost' }
end
local facts = redis.call('HMGET', member, 'cursor', 'number')
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
  redis.call('HSET', member, 'cursor', text(stored + n))
  redis.call('HINCRBY', ledger, 'taken', n)
  stored = stored + n
  held = held - n
end
if held == 0 then
  held = take(errors, kept, inflight, want)
end
return { 'took', stored, held }
