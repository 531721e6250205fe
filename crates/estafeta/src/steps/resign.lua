-- resign: gives up the office and calls the heir, so that a clean stop costs no time.
-- KEYS   succession ledger events
-- ARGV   incarnation epoch channel-prefix
-- Answer {'resigned'}, even if the caller was no longer in office.
-- Invariant: only the holder of exactly this epoch can vacate the office.
local succession, ledger, events = KEYS[1], KEYS[2], KEYS[3]
local me = ARGV[1]

local office = redis.call('HMGET', ledger, 'member', 'epoch', 'number')
if office[1] ~= me or office[2] ~= ARGV[2] then
  return { 'resigned' }
end
redis.call('XLEN', events)
redis.call('ZCARD', succession)
local number = office[3] or '0'

vacate(ledger, succession, number)
announce(events, 'resigned', 'member', number)
call_heir(succession, ARGV[3], me)
return { 'resigned' }
