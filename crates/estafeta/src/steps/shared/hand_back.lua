-- When a member goes away, what it held returns to where it came from, in the old order. A reader's errors go to the
-- head of `errors`. A handler's messages go to the head of `ready` with one more delivery, and with one more death if
-- the member died. Messages that too many members died with become errors instead. `collect` only reads and `hand_back`
-- only writes, so that a script can put its last check between the two.

-- Number and kind of a member that goes away. If its registration was deleted, it has no number. Only a reader has a
-- list of what it holds.
local function identify(number, kind, inflight)
  local is_reader = redis.call('EXISTS', inflight) == 1
  return string.match(number or '', '^%d+$') or '0', kind or (is_reader and 'reader' or 'node')
end

local function by_id(one, other)
  return one.id < other.id
end

-- `keys` names ready, errors, ledger, inflight (the list of a reader), journal (if the ring keeps one) and open (if the
-- member died). `collect` checks the type of each that it needs, before any write. `max_deaths` is nil if the member
-- lives. A script for which several members go away gives them one `queue`, and no ready.
local function collect(kind, member, keys, max_deaths, queue)
  queue = queue or read_queue(keys.ready, keys.ledger)
  check_counts(keys.ledger, 'returned', 'failed', 'buried')
  redis.call('LLEN', keys.errors)
  if keys.journal then
    redis.call('XLEN', keys.journal)
  end
  local held = { kind = kind, queue = queue, back = {}, spent = {}, ended = {} }
  if kind == 'reader' then
    held.back = redis.call('LRANGE', keys.inflight, 0, -1)
    return held
  end
  redis.call('LLEN', keys.inflight)
  local open, back, spent = packs().open, {}, {}
  -- Only a limit on what all members hold together needs this count.
  held.count = queue.brakes and tonumber(redis.call('HGET', member, 'held')) or 0
  for _, claim in ipairs(claims_after(0, redis.call('HGETALL', member))) do
    for _, element in ipairs(open(claim.element) or { claim.element }) do
      local message = split_message(element)
      if not message then
        back[#back + 1] = { id = 0, element = element }
      elseif max_deaths and message.deaths + 1 >= max_deaths then
        held.spent[#held.spent + 1], spent[#spent + 1] = { id = message.id, element = element }, element
      else
        message.deliveries = message.deliveries + 1
        message.deaths = message.deaths + (max_deaths and 1 or 0)
        back[#back + 1] = { id = message.id, element = join_message(message) }
      end
    end
  end
  table.sort(back, by_id)
  table.sort(held.spent, by_id)
  held.ended = entry_ids(keys.open, spent)
  for i, one in ipairs(back) do
    held.back[i] = one.element
  end
  return held
end

-- Returns how many messages went back to the queue.
local function hand_back(held, keys, number, now)
  if held.kind == 'reader' then
    push_all('LPUSH', keys.errors, reversed(held.back))
  else
    give_back(held.queue, held.back)
  end

  local failed, ids = {}, {}
  for i, spent in ipairs(held.spent) do
    failed[i] = error_element(spent.element, 'deaths', text(now), number,
      'gave up: every node that handled it died or hung')
    ids[i] = text(spent.id)
  end
  push_all('RPUSH', keys.errors, failed)
  push_all('HDEL', keys.open, held.ended)
  if #ids > 0 then
    redis.call('HINCRBY', keys.ledger, 'failed', #ids)
    if keys.journal then
      local list = table.concat(ids, ' ')
      redis.call('XADD', keys.journal, '*', 'ids', list, 'errors', list, 'member', number)
    end
  end
  if held.queue.brakes then
    brakes().count(held.queue, 0, held.count or 0)
  end
  redis.call('DEL', keys.inflight)
  local returned = held.kind == 'reader' and 0 or #held.back
  redis.call('HINCRBY', keys.ledger, 'returned', returned)
  return returned
end
