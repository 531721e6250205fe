-- What a call of `turn` lets go of, beyond whole elements that were handled successfully.

-- What a message counts that is postponed, by its outcome.
local causes = { retry = 'failures', die = 'deaths', snooze = 'snoozes' }

-- Reads the outcomes of the `others`, which are the arguments `first` to `last` of `turn`. Only reads. Returns false if
-- the member does not hold what they name. Otherwise returns which messages are postponed, by name and index.
local function read_others(outcomes, messages_of, delayed, first, last)
  local is_postponed, names = {}, {}
  for i = first, last, 5 do
    local messages = messages_of(ARGV[i])
    local element = messages[ARGV[i + 1] + 1]
    if not element then
      return false
    end
    -- A broken pack is one foreign message, whatever number of messages its header names.
    local size = tonumber(string.match(ARGV[i], '%*(%d+)$') or 1)
    outcomes.phantoms = outcomes.phantoms + (#messages == 1 and size - 1 or 0)
    local outcome, after, detail = ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]
    local is_last = outcome == 'fail' or outcome == 'perish'
    local message = not is_last and outcome ~= 'done' and split_message(element)
    if outcome == 'done' then
      outcomes.done[#outcomes.done + 1] = element
    elseif message then
      local name = later_name(message.id)
      local cause = causes[outcome]
      outcomes.postponed[#outcomes.postponed + 1] = { name = name, place = ARGV[i] .. ' ' .. ARGV[i + 1],
        before = element, element = postponed_message(message, cause, detail), after = after, cause = cause }
      names[#names + 1] = name
    else
      local reason = is_last and detail or 'not a message of estafeta: foreign data in the queue'
      local cause = outcome == 'perish' and 'deaths' or 'failures'
      outcomes.failures[#outcomes.failures + 1] = { message = element, reason = reason, cause = cause }
    end
  end
  -- Only a foreign client can make two messages with one id. The second one cannot wait beside the first.
  local postponed, is_taken = {}, {}
  for from = 1, #names, 1000 do
    local to = math.min(from + 999, #names)
    for i, waits in ipairs(redis.call('HMGET', delayed, unpack(names, from, to))) do
      local one = outcomes.postponed[from + i - 1]
      if waits or is_taken[one.name] then
        local reason = 'another message with this id waits for its time'
        outcomes.failures[#outcomes.failures + 1] = { message = one.before, reason = reason }
      else
        postponed[#postponed + 1], is_taken[one.name], is_postponed[one.place] = one, true, true
      end
    end
  end
  outcomes.postponed = postponed
  return is_postponed
end

-- Reads the arguments of `turn` from `first` on. Only reads. Returns nil if the member does not hold what they name.
-- What follows them begins at the argument `after`.
local function read_outcomes(member, delayed, journal, first, whole, returns, parts, others)
  local names, at = {}, first + whole + returns
  for i = journal and first or first + whole, at - 1 do
    names[#names + 1] = ARGV[i]
  end
  local outcomes = { parts = {}, failures = {}, postponed = {}, done = {}, back = {}, ids = {}, in_parts = 0,
    phantoms = 0 }
  for i = 1, parts do
    local part = { name = ARGV[at], fate = {} }
    local settled, back = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    for index = at + 3, at + 2 + settled + back do
      part.fate[ARGV[index] + 1] = index <= at + 2 + settled and 'settled' or 'back'
    end
    outcomes.parts[i], names[#names + 1] = part, part.name
    outcomes.in_parts = outcomes.in_parts + settled + back
    at = at + 3 + settled + back
  end
  local first_other = at
  outcomes.after = first_other + 5 * others
  for i = first_other, outcomes.after - 1, 5 do
    names[#names + 1] = ARGV[i]
  end
  local element_of, messages_of = read_hand(member, names)
  if not element_of then
    return nil
  end
  local is_postponed = read_others(outcomes, messages_of, delayed, first_other, outcomes.after - 1)
  if not is_postponed then
    return nil
  end
  local postpones = #outcomes.postponed > 0
  if journal then
    for i = first, first + whole - 1 do
      for index, message in ipairs(messages_of(ARGV[i])) do
        if not (postpones and is_postponed[ARGV[i] .. ' ' .. index - 1]) then
          outcomes.ids[#outcomes.ids + 1] = text(id_of(message))
        end
      end
    end
  end
  local back = {}
  for i = first + whole, first + whole + returns - 1 do
    local claim, index = string.match(ARGV[i], '^(%d+)%.?(%d*)')
    back[#back + 1] = { claim = tonumber(claim), index = tonumber(index) or 0, element = element_of[ARGV[i]] }
  end
  for _, part in ipairs(outcomes.parts) do
    part.messages = messages_of(part.name)
    for i, message in ipairs(part.messages) do
      if part.fate[i] == 'back' then
        back[#back + 1] = { claim = tonumber(string.match(part.name, '^%d+')), index = i, element = message }
      elseif part.fate[i] and not (postpones and is_postponed[part.name .. ' ' .. i - 1]) then
        outcomes.ids[#outcomes.ids + 1] = text(id_of(message))
      end
      part.fate[i] = part.fate[i] or 'stays'
    end
    if #part.fate ~= #part.messages then
      return nil
    end
  end
  -- Claims are numbered in the order of the queue, and in that order they go back.
  table.sort(back, function(one, other)
    return one.claim < other.claim or (one.claim == other.claim and one.index < other.index)
  end)
  for i, one in ipairs(back) do
    outcomes.back[i] = one.element
  end
  return outcomes
end

-- The ids of the messages of schedule entries that get their outcome in this step. Only reads.
local function ended_ids(outcomes, open)
  local ended = outcomes.done
  for _, failure in ipairs(outcomes.failures) do
    ended[#ended + 1] = failure.message
  end
  return entry_ids(open, ended)
end

-- Removes elements of a hand that `count` arguments name, from `first` on. They hold `messages` messages. Returns how
-- many messages there were.
local function delete_elements(hash, first, count, messages)
  local deleted, last, names_of = 0, first + count - 1, {}
  -- It matters which of them were there only if packs are among them.
  if messages == count then
    for from = first, last, 1000 do
      deleted = deleted + redis.call('HDEL', hash, unpack(ARGV, from, math.min(from + 999, last)))
    end
    return deleted
  end
  for i = first, last do
    local size = tonumber(string.match(ARGV[i], '%*(%d+)$') or 1)
    local names = names_of[size] or {}
    names_of[size], names[#names + 1] = names, ARGV[i]
  end
  for size, names in pairs(names_of) do
    for from = 1, #names, 1000 do
      deleted = deleted + size * redis.call('HDEL', hash, unpack(names, from, math.min(from + 999, #names)))
    end
  end
  return deleted
end

-- Applies what `read_outcomes` has read. The rest of a pack of which only a part leaves stays in the hand as single
-- messages. Returns how many messages failed.
local function note_outcomes(outcomes, member, number, errors, ledger, journal, now)
  for _, part in ipairs(outcomes.parts) do
    local claim, rest = string.match(part.name, '^%d+'), {}
    for i, message in ipairs(part.messages) do
      if part.fate[i] == 'stays' then
        rest[#rest + 1], rest[#rest + 2] = claim .. '.' .. i - 1, message
      end
    end
    redis.call('HDEL', member, part.name)
    if #rest > 0 then
      redis.call('HSET', member, unpack(rest))
    end
  end
  local failed, failed_ids = {}, {}
  for i, failure in ipairs(outcomes.failures) do
    failed[i] = error_element(failure.message, failure.cause or 'failures', text(now), number, failure.reason)
    failed_ids[i] = text(id_of(failure.message))
  end
  push_all('RPUSH', errors, failed)
  if #failed > 0 then
    redis.call('HINCRBY', ledger, 'failed', #failed)
    redis.call('HINCRBY', member, 'failed', #failed)
  end
  local retries = 0
  for _, one in ipairs(outcomes.postponed) do
    retries = retries + (one.cause == 'snoozes' and 0 or 1)
  end
  if #outcomes.postponed > 0 then
    redis.call('HINCRBY', ledger, 'retries', retries)
    redis.call('HINCRBY', ledger, 'snoozes', #outcomes.postponed - retries)
  end
  if journal and #outcomes.ids > 0 then
    redis.call('XADD', journal, '*', 'ids', table.concat(outcomes.ids, ' '), 'errors',
      table.concat(failed_ids, ' '), 'member', number)
  end
  return #failed
end
