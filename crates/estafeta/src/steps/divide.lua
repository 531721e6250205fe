-- divide: marks a ring's name as that of a ring with several partitions. The partitions have names of their own.
-- KEYS   schema requires
-- ARGV   oldest newest known-words demand
--        oldest, newest, known-words: as in `join`. demand: the word that states the number of partitions.
-- Answer {'divided'} · {'schema', theirs} · {'requires', word}: the ring has a requirement that the caller does not
--        know, such as another number of partitions · {'lacks', word}: the ring exists and is not divided
-- Invariant: the number of partitions never changes. No member joins a ring that is divided, and no ring that has had a
-- member is divided. A repeat changes nothing.
local demand = ARGV[4]

local layout, refusal, found = read_layout(KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3])
if refusal then
  return refusal
elseif layout and not found[demand] then
  return { 'lacks', demand }
end
redis.call('SADD', KEYS[2], demand)
return { 'divided' }
