-- Makes sure that counts which are about to be changed are numbers: HINCRBY would fail half-way otherwise.
local function check_counts(ledger, ...)
  for _, count in ipairs(redis.call('HMGET', ledger, ...)) do
    if count and not string.match(count, '^%-?%d+$') then
      error({ err = 'WRONGTYPE a count of the ledger is not a number' })
    end
  end
end
