-- Effects: what `turn` writes for messages that are done, in the step that settles them. All functions are inside one,
-- because Redis spends time on every function that a script defines, and most calls have no effects.

-- Reads the effects, which begin at argument `at`, and checks them in the order in which they are applied. Only reads.
-- `first_key` is the last key before theirs. A message with a bad effect becomes a failure of `outcomes`, and none of
-- its effects is applied. Returns nil if the member does not hold what the effects name. Otherwise returns a function
-- that applies them, and which messages have bad effects: `position bytes reason` for each.
local function read_effects(outcomes, member, queue, at, first_key, now)
  local most = 999999999999999
  local ring_count = tonumber(ARGV[at])
  local rings, states = {}, {}

  -- What a key holds before this step. Only the beginning of a string matters: a number has at most 16 characters.
  local function state_of_key(key)
    local kind = redis.call('TYPE', key).ok
    local state = { kind = kind }
    if kind == 'string' then
      state.value = redis.call('GETRANGE', key, 0, 16)
    elseif kind == 'stream' then
      local facts = redis.call('XINFO', 'STREAM', key)
      for i = 1, #facts, 2 do
        if facts[i] == 'last-generated-id' then
          state.is_full = string.find(facts[i + 1], '^18446744073709551615%-') ~= nil
        end
      end
    end
    return state
  end

  -- The number that a text is, if Redis and Lua count exactly with it.
  local function number_in(value)
    if value == '0' or string.find(value, '^%-?[1-9]%d*$') then
      local number = tonumber(value)
      return math.abs(number) <= most and number or nil
    end
    return nil
  end

  -- Reads a ring to which messages are forwarded. `refusal` is why it takes none. No fault of that ring stops this
  -- step.
  local function read_ring(number)
    local key, facts = first_key + 5 * (number - 1), at + 4 + 3 * (number - 1)
    local ring = { schema = KEYS[key + 1], application = KEYS[key + 3], ledger = KEYS[key + 4], ready = KEYS[key + 5],
      channels = ARGV[facts + 1], ours = ARGV[facts + 2], elements = {} }
    local oldest, newest = ARGV[at + 1], ARGV[at + 2]
    local readable, layout, refused =
      pcall(read_layout, ring.schema, KEYS[key + 2], oldest, newest, ARGV[at + 3])
    local theirs = readable and not refused and redis.pcall('GET', ring.application)
    local counted, its_queue, published, submitted, born
    if readable and not refused and type(theirs) ~= 'table' then
      counted, its_queue, published, submitted, born = pcall(function()
        local found, one, two, three = read_queue(ring.ready, ring.ledger, 'published', 'submitted', 'born')
        return found, number_of(one, ring.ledger), number_of(two, ring.ledger), checked(three, ring.ledger)
      end)
    end
    if refused and refused[1] == 'schema' then
      ring.refusal = 'it has layout ' .. refused[2] .. ', this node knows ' .. oldest .. ' to ' .. newest
    elseif refused then
      ring.refusal = 'it requires ' .. refused[2] .. ', which this node does not know'
    elseif not counted then
      ring.refusal = 'something else uses one of its keys'
    elseif theirs and theirs ~= ring.ours then
      ring.refusal = 'it belongs to the application ' .. theirs .. ', expected ' .. ring.ours
    else
      ring.layout, ring.theirs, ring.queue = layout, theirs, its_queue
      ring.published, ring.submitted, ring.born = published, submitted, born or text(now)
    end
    -- A ring may forward to itself.
    if ring.ready == queue.key then
      ring.queue = queue
    end
    return ring
  end

  -- Returns why an effect is bad. `changed` are the states of keys after the earlier effects of the same message.
  local function fault_of(i, changed)
    local kind, number = ARGV[i + 2], tonumber(ARGV[i + 3])
    if kind == 'forward' then
      rings[number] = rings[number] or read_ring(number)
      local refusal = rings[number].refusal
      return refusal and 'forward to ' .. ARGV[at + 4 + 3 * (number - 1)] .. ': ' .. refusal
    end
    local key = KEYS[first_key + 5 * ring_count + number]
    states[key] = states[key] or state_of_key(key)
    local state = changed[key] or states[key]
    local expected = kind == 'append' and 'stream' or 'string'
    if state.kind ~= 'none' and state.kind ~= expected then
      return kind .. ' ' .. key .. ': expected a ' .. expected .. ', got a ' .. state.kind
    end
    local value = ARGV[i + 6]
    if kind == 'add' then
      local before = number_in(state.value or '0')
      local sum = before and before + tonumber(value)
      if not sum then
        return 'add ' .. key .. ': expected a whole number of at most 15 digits, got another text'
      elseif math.abs(sum) > most then
        return 'add ' .. key .. ': expected a sum of at most 15 digits, got more'
      end
      value = text(sum)
    elseif state.is_full then
      return 'append ' .. key .. ': the stream has no id left for another entry'
    end
    changed[key] = { kind = expected, value = string.sub(value, 1, 17) }
    return nil
  end

  local function apply_one(i, element)
    local kind, number, option = ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]
    if kind == 'forward' then
      local elements = rings[number].elements
      local id = rings[number].published + #elements + 1
      elements[#elements + 1] = new_element(id, text(now), 1, ARGV[i + 6])
      return
    end
    local key, value = KEYS[first_key + 5 * ring_count + number], ARGV[i + 6]
    if kind == 'add' then
      redis.call('INCRBY', key, value)
    elseif kind == 'append' and option == '0' then
      redis.call('XADD', key, '*', unpack(ARGV, i + 6, i + 5 + ARGV[i + 5]))
    elseif kind == 'append' then
      redis.call('XADD', key, 'MAXLEN', '~', option, '*', unpack(ARGV, i + 6, i + 5 + ARGV[i + 5]))
    else
      -- A result names its message: after a roll-back, another message may get the same id.
      if kind == 'result' then
        value = string.match(element, '^%d+ (%d+) ') .. ' ' .. text(now) .. ' ' .. value
      end
      if option == '0' then
        redis.call('SET', key, value)
      else
        redis.call('SET', key, value, 'PX', option)
      end
    end
  end

  -- Publishes what is forwarded to a ring, like `submit`, but even if that ring is full.
  local function publish_in(ring)
    local count, was_empty = #ring.elements, ring.queue.length == 0
    push(ring.queue, ring.elements, 1, count)
    local counts = { 'published', text(ring.published + count), 'submitted', text(ring.submitted + count),
      'born', ring.born }
    if ring.queue == queue then
      redis.call('HSET', ring.ledger, unpack(counts))
      return
    end
    if not ring.layout then
      redis.call('SET', ring.schema, ARGV[at + 2])
    end
    if not ring.theirs then
      redis.call('SET', ring.application, ring.ours)
    end
    if was_empty or ring.queue.ends then
      wake_one(ring.queue, ring.channels)
    end
    save_queue(ring.queue, unpack(counts))
  end

  local messages, names, i = {}, {}, at + 4 + 3 * ring_count
  while i <= #ARGV do
    local last = messages[#messages]
    if not last or last.name ~= ARGV[i] or last.index ~= ARGV[i + 1] then
      last = { name = ARGV[i], index = ARGV[i + 1], effects = {} }
      messages[#messages + 1], names[#names + 1] = last, ARGV[i]
    end
    last.effects[#last.effects + 1] = i
    i = i + 6 + ARGV[i + 5]
  end
  local _, messages_of = read_hand(member, names)
  if not messages_of then
    return nil
  end
  local good, bad = {}, {}
  for position, message in ipairs(messages) do
    message.element = messages_of(message.name)[message.index + 1]
    if not message.element then
      return nil
    end
    local fault, changed = nil, {}
    for _, effect in ipairs(message.effects) do
      fault = fault or fault_of(effect, changed)
    end
    if fault then
      outcomes.failures[#outcomes.failures + 1] = { message = message.element, reason = fault }
      bad[#bad + 1] = position .. ' ' .. #fault .. ' ' .. fault
    else
      good[#good + 1] = message
      for key, state in pairs(changed) do
        states[key] = state
      end
    end
  end
  return function()
    for _, message in ipairs(good) do
      for _, effect in ipairs(message.effects) do
        apply_one(effect, message.element)
      end
    end
    for number = 1, ring_count do
      if rings[number] and #rings[number].elements > 0 then
        publish_in(rings[number])
      end
    end
  end, table.concat(bad)
end
