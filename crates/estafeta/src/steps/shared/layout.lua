-- Who may use a ring. A caller knows the layouts from `oldest` to `newest`, and the `words` of `requires`, with spaces
-- between them.

-- Returns the layout in force, which is nil for a new ring, and the answer to a caller that may not use the ring.
local function read_layout(schema, requires, oldest, newest, words)
  local layout = redis.call('GET', schema)
  local in_force = tonumber(layout or newest)
  if not in_force or in_force < tonumber(oldest) or in_force > tonumber(newest) then
    return layout, { 'schema', layout }
  end
  for _, word in ipairs(redis.call('SMEMBERS', requires)) do
    if not string.find(' ' .. words .. ' ', ' ' .. word .. ' ', 1, true) then
      return layout, { 'requires', word }
    end
  end
  return layout or nil
end

-- Reads the layout and the application of a ring. `ours` is the caller's application, or empty if it may use any ring.
-- Returns both, and the answer to a caller that may not use the ring.
local function admit(schema, requires, application, ours, oldest, newest, words)
  local layout, refusal = read_layout(schema, requires, oldest, newest, words)
  local theirs = not refusal and redis.call('GET', application)
  if theirs and ours ~= '' and theirs ~= ours then
    refusal = { 'application', theirs }
  end
  return layout, theirs, refusal
end
