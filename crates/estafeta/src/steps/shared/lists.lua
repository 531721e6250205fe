-- Pushes any number of elements: all of them, or those from index `from` on. `unpack` has a limit, so they go in
-- bounded chunks.
local function push_all(command, key, elements, from)
  for first = from or 1, #elements, 500 do
    redis.call(command, key, unpack(elements, first, math.min(first + 499, #elements)))
  end
end

local function reversed(list)
  local other = {}
  for i = #list, 1, -1 do
    other[#other + 1] = list[i]
  end
  return other
end
