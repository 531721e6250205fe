-- How the ring sees a member: 'well'; 'expired' (its lease ran out); 'absent' (it keeps a subscription to its own
-- channel for as long as it lives, and nobody is subscribed); 'ahead' (its deadline is further off than its lease,
-- which means that Redis' clock jumped back).
local function state_of(deadline, is_missed, lease, now)
  if deadline < now then
    return 'expired'
  elseif is_missed then
    return 'absent'
  elseif deadline > now + lease then
    return 'ahead'
  end
  return 'well'
end

-- Looks at one member; nil if it is none. One that could not subscribe is judged by its lease alone.
local function look_at(members, incarnation, channel, has_presence, lease, now)
  local deadline = tonumber(redis.call('ZSCORE', members, incarnation))
  local is_missed = has_presence and redis.call('PUBSUB', 'NUMSUB', channel)[2] == 0
  return deadline and state_of(deadline, is_missed, lease, now)
end

-- Absence counts only when it was seen before, long enough ago: a connection may be on its way back.
local function is_dead(state, absent_since, grace, now)
  return state == nil or state == 'expired' or (state == 'absent' and absent_since > 0 and now - absent_since >= grace)
end
