-- report: records that the generator's source failed. If the source keeps failing, another member gets the office.
-- KEYS   succession ledger events
-- ARGV   incarnation epoch n in-a-row reason channel-prefix
--        n: how many failures of this term the generator has reported, with this one. in-a-row: how often the source
--        has failed since it last made a message.
-- Answer {'noted'} · {'resigned'} · {'fenced'}
-- Invariant: only the holder of exactly this epoch reports, and a repeat records nothing. A generator whose source has
-- failed too often goes to the end of the line of succession, and `lead` lets others try first. If no other member is
-- in the line, the generator keeps the office.
local succession, ledger, events = KEYS[1], KEYS[2], KEYS[3]
local me, n, in_a_row = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
-- A generator gives way after `patience` failures in a row, and the last of them always gets an event. Of other
-- failures only the first ones and every tenth do: counted in a row if the row is long, and otherwise in the term.
local patience = 5
local nth = in_a_row > patience and in_a_row or n

local office = redis.call('HMGET', ledger, 'member', 'epoch', 'number')
if office[1] ~= me or office[2] ~= ARGV[2] then
  return { 'fenced' }
end
if n <= tonumber(check_counts(ledger, 'reported', 'source-failed')[1] or 0) then
  return { 'noted' }
end
redis.call('XLEN', events)
local gives_way = in_a_row >= patience and redis.call('ZCARD', succession) > 1
local number = office[3] or '0'

redis.call('HSET', ledger, 'reported', ARGV[3])
redis.call('HINCRBY', ledger, 'source-failed', 1)
if nth <= patience or nth % 10 == 0 or in_a_row == patience then
  announce(events, 'source-failed', 'member', number, 'in-a-row', ARGV[4], 'reason', ARGV[5])
end
if not gives_way then
  return { 'noted' }
end
vacate(ledger, succession, number)
redis.call('HSET', ledger, 'yielded', me)
redis.call('ZADD', succession, 'XX', text(end_of_line(succession)), me)
announce(events, 'resigned', 'member', number)
call_heir(succession, ARGV[6], me)
return { 'resigned' }
