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
