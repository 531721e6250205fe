-- When a member goes away, what it held returns to where it came from, in the old order. A reader's errors go to the
-- head of `errors`. A handler's messages go to the head of `ready` with one more delivery, and with one more death if
-- the member died. Messages that too many members died with become errors instead. `collect` only reads and `hand_back`
-- only writes, so that a script can put its last check between the two.

-- Number and kind of a member that goes away. If its registration was deleted, it has no number. Its place in the line
-- of succession then distinguishes a handler from a reader.
local function identify(number, kind, succession, incarnation)
  local is_heir = redis.call('ZSCORE', succession, incarnation)
  return string.match(number or '', '^%d+$') or '0', kind or (is_heir and 'node' or 'reader')
end

local function by_id(one, other)
  return one.id < other.id
end

-- `keys` names ready, errors, ledger and journal (if the ring keeps one). `collect` checks the type of each, before any
-- write. `max_deaths` is nil if the member lives.
local function collect(kind, lists, keys, max_deaths)
  local queue = read_queue(keys.ready, keys.ledger, 'returned', 'failed', 'buried')
  redis.call('LLEN', keys.errors)
  if keys.journal then
    redis.call('XLEN', keys.journal)
  end
  local held = { kind = kind, lists = lists, queue = queue, back = {}, alone = 0, spent = {} }
  for _, list in ipairs(lists) do
    local elements = kind == 'reader' and redis.call('LRANGE', list, 0, -1) or read_list(list).messages or {}
    for _, element in ipairs(elements) do
      if kind == 'reader' then
        held.back[#held.back + 1] = { id = #held.back, element = element }
      else
        local message = split_message(element)
        if not message then
          held.back[#held.back + 1] = { id = 0, element = element }
        elseif max_deaths and message.deaths + 1 >= max_deaths then
          held.spent[#held.spent + 1] = { id = message.id, element = element }
        else
          message.deliveries = message.deliveries + 1
          message.deaths = message.deaths + (max_deaths and 1 or 0)
          held.back[#held.back + 1] = { id = message.id, element = join_message(message) }
          held.alone = held.alone + (message.deaths > 0 and 1 or 0)
        end
      end
    end
  end
  table.sort(held.back, by_id)
  table.sort(held.spent, by_id)
  return held
end

-- Returns how many messages went back to the queue.
local function hand_back(held, keys, number, now)
  local back = {}
  for i, one in ipairs(held.back) do
    back[i] = one.element
  end
  if held.kind == 'reader' then
    push_all('LPUSH', keys.errors, reversed(back))
  elseif #back > 0 then
    give_back(held.queue, back, held.alone)
    save_queue(held.queue)
  end

  local failed, ids = {}, {}
  for i, spent in ipairs(held.spent) do
    failed[i] = error_element(spent.element, 'deaths', text(now), number,
      'gave up: every node that handled it died or hung')
    ids[i] = text(spent.id)
  end
  push_all('RPUSH', keys.errors, failed)
  if #ids > 0 then
    redis.call('HINCRBY', keys.ledger, 'failed', #ids)
    if keys.journal then
      local list = table.concat(ids, ' ')
      redis.call('XADD', keys.journal, '*', 'ids', list, 'errors', list, 'member', number)
    end
  end
  for _, list in ipairs(held.lists) do
    redis.call('DEL', list)
  end
  local returned = held.kind == 'reader' and 0 or #held.back
  redis.call('HINCRBY', keys.ledger, 'returned', returned)
  return returned
end
