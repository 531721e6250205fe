-- sample: adds the state of the ring to its history.
-- KEYS   members succession ready later ledger latencies seconds tens minutes
-- ARGV   incarnation number epoch silence-ms
--        number: the caller's number. epoch: its term, 0 if it is not in office. silence-ms: the longest time since its
--        last sample in which Redis did not answer it.
-- Answer {'sampled', now} · {'other', now} (another member samples) · {'fenced'}
-- Invariant: the generator samples, in exactly its epoch. If the office is vacant and no member may take it, one of the
-- other members samples: the one that did so last, until it has been silent for a while. A refusal writes nothing. Two
-- samples of the same second become one, so a repeat does no harm. Each latency is added once: it moves from
-- `latencies` to the lists.
local members, succession, ready, later, ledger, latencies = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local me, number = ARGV[1], tonumber(ARGV[2])
-- The samples of each list: how many ms one covers, and how many are kept.
local widths, lengths = { 1000, 10000, 60000 }, { 300, 360, 1440 }
-- How long a member that is not in office may be silent until another one samples.
local patience = 2500

local facts = redis.call('HMGET', ledger, 'member', 'epoch', 'soonest', 'published', 'done', 'failed', 'retries',
  'returned', 'buried', 'takeovers', 'retried', 'lost', 'cancelled')
local now = now_ms()
local lasts = {}
for i = 1, 3 do
  lasts[i] = last_sample(KEYS[6 + i]) or false
end
if facts[1] then
  if facts[1] ~= me or facts[2] ~= ARGV[3] then
    return { 'fenced' }
  end
elseif ARGV[3] ~= '0' or redis.call('ZCARD', succession) > 0 or not redis.call('ZSCORE', members, me) then
  return { 'fenced' }
elseif lasts[1] and lasts[1].member ~= number and math.abs(now - lasts[1].time) < patience then
  return { 'other', now }
end
local function count(at)
  return math.max(number_of(facts[at], ledger), 0)
end
local fresh = { time = now, span = 0, epoch = count(2), member = number, members = redis.call('ZCARD', members),
  published = count(4), done = count(5), failed = count(6), retries = count(7), returned = count(8),
  buried = count(9), takeovers = count(10), waiting = peek(ready, ledger), later = redis.call('ZCARD', later),
  silence = tonumber(ARGV[4]) }
local open = fresh.published - fresh.done - fresh.failed + count(11) - count(12) - count(13)
fresh.in_flight = math.max(open - fresh.waiting - fresh.later, 0)
fresh.age = oldest_age(ready, count(3), lasts[1], now)
fresh.busy = fresh.waiting > 0 and busy_time(lasts[1], now) or 0
local waits, handlings = {}, {}
local counted = redis.call('HGETALL', latencies)
for i = 1, #counted, 2 do
  local kind, at = string.match(counted[i], '^([wh])(%d+)$')
  if kind then
    (kind == 'w' and waits or handlings)[tonumber(at)] = math.max(number_of(counted[i + 1], latencies), 0)
  end
end

for i = 1, 3 do
  local list, last, width = KEYS[6 + i], lasts[i], widths[i]
  local slot = math.floor(now / width)
  -- Redis' clock was set back. What was sampled at later times would be in the way.
  while last and math.floor(last.time / width) > slot do
    redis.call('LTRIM', list, 0, -2)
    last = last_sample(list)
  end
  local sample, wait, handling = {}, {}, {}
  for name, value in pairs(fresh) do
    sample[name] = value
  end
  for at = 0, 22 do
    wait[at], handling[at] = waits[at], handlings[at]
  end
  local is_same = last and math.floor(last.time / width) == slot
  if is_same then
    sample.span = math.max(last.span + now - last.time, 0)
    for _, name in ipairs({ 'waiting', 'in_flight', 'age', 'silence' }) do
      sample[name] = math.max(sample[name], last[name])
    end
    add_latencies(wait, last.wait)
    add_latencies(handling, last.handling)
  end
  local row = {}
  for at, name in ipairs(sample_names()) do
    row[at] = text(sample[name])
  end
  local element = table.concat(row, ' ') .. ' ' .. latencies_text(wait) .. ' ' .. latencies_text(handling)
  if is_same then
    redis.call('LSET', list, -1, element)
  else
    redis.call('RPUSH', list, element)
    redis.call('LTRIM', list, -lengths[i], -1)
  end
end
if #counted > 0 then
  redis.call('DEL', latencies)
end
return { 'sampled', now }
