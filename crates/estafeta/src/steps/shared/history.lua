-- The history of a ring: three lists of samples, one sample for each second, ten seconds and minute. A sample is a row
-- of numbers with spaces between them, and two groups of latencies. Latencies are counts with fixed bounds. Their text
-- is the index of the first count that is not 0, and all counts up to the last such one: `3:5,0,17`, or `-` for none.

-- The names of the numbers of a sample, in their order.
local function sample_names()
  return { 'time', 'span', 'epoch', 'member', 'members', 'published', 'done', 'failed', 'retries', 'returned', 'buried',
    'takeovers', 'waiting', 'later', 'in_flight', 'age', 'busy', 'silence' }
end

-- Reads latencies into counts by index, and adds them to what is there.
local function add_latencies(counts, latencies)
  local first, rest = string.match(latencies, '^(%d+):([%d,]+)$')
  local at = tonumber(first)
  for count in string.gmatch(rest or '', '%d+') do
    counts[at] = (counts[at] or 0) + tonumber(count)
    at = at + 1
  end
end

-- The text of counts by index. There are 23 of them.
local function latencies_text(counts)
  local list, first, last = {}, nil, nil
  for at = 0, 22 do
    if (counts[at] or 0) > 0 then
      first, last = first or at, at
    end
  end
  if not first then
    return '-'
  end
  for at = first, last do
    list[#list + 1] = text(counts[at] or 0)
  end
  return first .. ':' .. table.concat(list, ',')
end

-- Reads the last sample of a list. Returns nil if there is none, or if it is not one of ours.
local function last_sample(list)
  local element = redis.call('LRANGE', list, -1, -1)[1]
  local numbers, wait, handling = string.match(element or '', '^([%d -]+) (%S+) (%S+)$')
  local sample, names, at = { wait = wait, handling = handling }, sample_names(), 0
  for number in string.gmatch(numbers or '', '%S+') do
    at = at + 1
    sample[names[at] or 'more'] = tonumber(number)
  end
  return at == #names and sample.silence and not sample.more and sample or nil
end

-- For how long the queue has not been seen empty, by the last sample. -1 if that is not known.
local function busy_time(last, now)
  return last and last.busy >= 0 and last.time <= now and last.busy + now - last.time or -1
end

-- For how long the first message of the queue has waited, and no shorter than a delayed message that is due. A message
-- that was put off or tried again has waited for less than since its publish. `last` is the last sample: a message has
-- waited no longer than since the queue was last seen empty.
local function oldest_age(ready, soonest, last, now)
  local age, published = 0, published_of_head(ready)
  if published then
    local busy = busy_time(last, now)
    age = busy >= 0 and math.min(now - published, busy) or now - published
  end
  if soonest > 0 then
    age = math.max(age, now - soonest)
  end
  return math.max(age, 0)
end
