-- Adds one entry to the capped event stream of the ring.
local function announce(events, kind, ...)
  redis.call('XADD', events, 'MAXLEN', '~', 10000, '*', 'kind', kind, ...)
end
