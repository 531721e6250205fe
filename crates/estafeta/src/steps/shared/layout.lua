-- Who may use a ring. A caller knows the layouts from `oldest` to `newest`, and the `words` of `requires`, with spaces
-- between them. `name=*` stands for every word that begins with `name=`.

-- Returns the layout in force, which is nil for a new ring, and the answer to a caller that may not use the ring.
local function read_layout(schema, requires, oldest, newest, words)
  local layout = redis.call('GET', schema)
  local in_force = tonumber(layout or newest)
  if not in_force or in_force < tonumber(oldest) or in_force > tonumber(newest) then
    return layout, { 'schema', layout }
  end
  local known, found = ' ' .. words .. ' ', {}
  for _, word in ipairs(redis.call('SMEMBERS', requires)) do
    local name = string.match(word, '^[^=]+=')
    local is_known = string.find(known, ' ' .. word .. ' ', 1, true)
      or name and string.find(known, ' ' .. name .. '* ', 1, true)
    if not is_known then
      return layout, { 'requires', word }
    end
    found[word] = true
  end
  return layout or nil, nil, found
end

-- Reads the layout and the application of a ring. `ours` is the caller's application, or empty if it may use any ring.
-- `demand` is a word that `requires` must contain, or empty. A ring that has an application has had a node or a
-- publisher, so it is too late for the word. Returns layout and application, the answer to a caller that may not use
-- the ring, and whether the caller must add the word.
local function admit(schema, requires, application, ours, oldest, newest, words, demand)
  local layout, refusal, found = read_layout(schema, requires, oldest, newest, words)
  if refusal then
    return layout, false, refusal
  end
  local theirs, adds = redis.call('GET', application), demand ~= '' and not found[demand]
  if theirs and ours ~= '' and theirs ~= ours then
    refusal = { 'application', theirs }
  elseif theirs and adds then
    refusal = { 'lacks', demand }
  end
  return layout, theirs, refusal, adds
end
