-- The brakes of the ring are a field of the ledger. It is there only while something is paused or limited. It holds
-- eight whole numbers with spaces between them:
--
-- `producing` and `handling`: when each pause ends, in ms of Redis' clock (0: it is not paused).
-- `most` and `hand`: how many messages all members may hold together (0: any number), and how many they hold. They are
-- counted only while there is such a limit.
-- `rate` and `per`: how many messages may be claimed in how many ms (rate 0: any number). `credit` and `since`: what
-- was left of that, and when. A ms adds `rate` to the credit, and a message costs `per`.

-- The end of a pause without a time limit. The field of a ring that has none.
local never, no_brakes = 999999999999999, '0 0 0 0 0 0 0 0'

-- The functions that read and write brakes. Most rings have none, so they are defined only when a script needs one.
local function brakes()
  local names = { 'producing', 'handling', 'most', 'hand', 'rate', 'per', 'credit', 'since' }

  -- What is left of the rate now. At most one message and those of 100 ms can be saved up. So a member that comes up to
  -- 100 ms late does not lose its share.
  local function credit_of(queue)
    local gained = (queue.now - queue.since) * queue.rate
    return math.min(queue.credit + gained, queue.per + 100 * queue.rate)
  end

  -- Finds out how many messages may be claimed now (`room`). If that is none because of a pause or the rate, `opens` is
  -- the time at which it changes. A rate opens when the messages of 10 ms may be claimed, and at least one.
  local function measure(queue)
    queue.room, queue.opens = math.huge, 0
    if queue.handling ~= 0 then
      queue.room, queue.opens = 0, queue.handling
      return
    end
    if queue.most > 0 then
      queue.room = math.max(queue.most - queue.hand, 0)
    end
    if queue.rate > 0 then
      local credit = credit_of(queue)
      queue.room = math.min(queue.room, math.floor(credit / queue.per))
      if credit < queue.per then
        queue.opens = queue.now + math.ceil((math.max(queue.per, 10 * queue.rate) - credit) / queue.rate)
      end
    end
  end

  -- Reads the field into `queue`. A pause that is over counts as none. `ends` is whether a pause of handling is over by
  -- its time. A damaged field counts as a pause of both without a time limit: nothing moves by mistake, `status` shows
  -- the pause, and `resume` ends it.
  local function read(queue, field)
    local values = { string.match(field, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$') }
    for i, name in ipairs(names) do
      queue[name] = math.min(tonumber(values[i] or (i <= 2 and never or 0)), never)
    end
    queue.brakes, queue.now = field, now_ms()
    -- If the clock was set back, the rate goes on from now.
    queue.since = math.min(queue.since, queue.now)
    if queue.handling ~= 0 then
      queue.known = queue.handling
      queue.ends = queue.handling <= queue.now
    end
    for _, name in ipairs({ 'producing', 'handling' }) do
      queue[name] = queue[name] > queue.now and queue[name] or 0
    end
    -- While there is a rate, each step sends the first in line the time at which it opens.
    if queue.rate > 0 and queue.handling == 0 then
      queue.known = 0
    end
    measure(queue)
  end

  -- Counts messages that members have claimed, and messages that they have let go of.
  local function count(queue, claimed, gone)
    if queue.most > 0 then
      queue.hand = math.max(queue.hand + claimed - gone, 0)
    end
    if queue.rate > 0 and claimed > 0 then
      queue.credit, queue.since = credit_of(queue) - claimed * queue.per, queue.now
    end
    measure(queue)
  end

  -- Writes the field of `queue`, if it changed.
  local function write(queue)
    local values = {}
    for i, name in ipairs(names) do
      values[i] = text(queue[name])
    end
    local field = table.concat(values, ' ')
    if queue.producing == 0 and queue.handling == 0 and queue.most == 0 and queue.rate == 0 then
      redis.call('HDEL', queue.ledger, 'brakes')
    elseif field ~= queue.brakes then
      redis.call('HSET', queue.ledger, 'brakes', field)
    end
  end

  return { read = read, measure = measure, count = count, write = write }
end
