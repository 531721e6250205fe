-- Messages that are published with a key or with a delay.

-- `first_key` is the last of KEYS before the keys of messages. `born` is when the ring began. Only `write` writes.
local function drafts(later, delayed, first_key, born)
  local keys, taken, names, postponed = {}, {}, {}, {}

  -- Returns the id of an equal message that has the key with this number, or false if another message has it. Returns
  -- nil if no message has it. The message `id` takes it then, for `window` ms.
  local function take_key(number, fingerprint, window, id)
    local key = KEYS[first_key + number]
    local holder, its_ring, its_print
    if keys[key] then
      holder, its_print = keys[key].id, keys[key].fingerprint
    else
      holder, its_ring, its_print = read_memory(key, '^(%d+) (%d+) (%x+)$')
      -- A ring that was deleted may leave a key behind.
      holder = its_ring == born and holder or nil
    end
    if holder then
      return its_print == fingerprint and holder
    end
    keys[key] = { id = text(id), fingerprint = fingerprint }
    taken[#taken + 1] = { key = key, window = text(window) }
    return nil
  end

  -- Has the message `id` wait for `after` ms.
  local function postpone(id, element, after)
    names[#names + 1] = later_name(id)
    postponed[#postponed + 1] = { name = names[#names], element = element, after = after }
  end

  -- Fails if a message cannot wait for its time.
  local function check()
    if #names == 0 then
      return
    end
    redis.call('ZCARD', later)
    for _, waits in ipairs(redis.call('HMGET', delayed, unpack(names))) do
      -- Only a foreign client can make two messages with one id.
      if waits then
        error({ err = 'WRONGTYPE ' .. delayed .. ': another message with this id waits for its time' })
      end
    end
  end

  local function write(queue, now)
    for _, one in ipairs(taken) do
      local value = keys[one.key].id .. ' ' .. born .. ' ' .. keys[one.key].fingerprint
      redis.call('SET', one.key, value, 'PX', one.window)
    end
    if #postponed > 0 then
      change_later(queue, later, delayed, nil, postponed, now)
    end
  end

  return { postponed = postponed, take_key = take_key, postpone = postpone, check = check, write = write }
end
