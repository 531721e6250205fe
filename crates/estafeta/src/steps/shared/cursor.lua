-- Returns whether to apply the settle of `n` that started at `cursor`. It is false if the settle was applied before,
-- and nil if the caller's view of its state is wrong.
local function to_settle(stored, cursor, n, held)
  if stored == cursor + n then
    return false
  elseif stored == cursor and held >= n then
    return true
  end
  return nil
end
