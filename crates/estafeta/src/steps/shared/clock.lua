-- Redis' own clock in milliseconds. The ring measures time with no other clock.
local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- A whole number as text. Lua's own conversion would switch to exponents past 14 digits.
local function text(number)
  return string.format('%d', number)
end
