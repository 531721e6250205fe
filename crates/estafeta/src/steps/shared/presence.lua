-- How the ring sees a member: 'alive'; 'expired' (its lease ran out); 'absent' (its channel has no subscriber, although
-- a member stays subscribed as long as it lives); 'ahead' (its deadline is further off than its lease, which means that
-- Redis' clock jumped back).
local function state_of(deadline, is_missed, lease, now)
  if deadline < now then
    return 'expired'
  elseif is_missed then
    return 'absent'
  elseif deadline > now + lease then
    return 'ahead'
  end
  return 'alive'
end

-- Returns the state of one member, or nil if there is no such member. If a member could not subscribe, its lease alone
-- decides.
local function look_at(members, incarnation, channel, has_presence, lease, now)
  local deadline = tonumber(redis.call('ZSCORE', members, incarnation))
  local is_missed = has_presence and redis.call('PUBSUB', 'NUMSUB', channel)[2] == 0
  return deadline and state_of(deadline, is_missed, lease, now)
end

-- Absence counts only if it was first seen long enough ago, because a connection may be on its way back.
local function is_dead(state, absent_since, grace, now)
  return state == nil or state == 'expired' or (state == 'absent' and absent_since > 0 and now - absent_since >= grace)
end
