-- Publishes a text on the channel of a member. Returns how many connections got it, or false if the caller may not use
-- the channel. Redis checks that right only here, when a step has written already, so a refusal must not end the step.
-- A call carries nothing: a member that was not called looks by itself, or the next sweep calls it.
local function notify(channel, call)
  local listeners = redis.pcall('PUBLISH', channel, call)
  return type(listeners) == 'number' and listeners
end
