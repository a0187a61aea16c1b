-- Writes changes of different rows, all or none. Arguments: the leadership or false, the changes. Returns one digit per
-- change; false if the leadership is over, with the current holder and epoch. If a change needs a decision, nothing is
-- written.

local LEAD, CHANGES = ARGS[1], ARGS[2]

local function are_written()
  for _, item in ipairs(CHANGES) do
    if not is_written(item) then return false end
  end
  return #CHANGES > 0
end

local now = deposed(LEAD)
if now and not are_written() then return {NOW, false, now[1], now[2]} end
local answers, asks = change_all(CHANGES)
if not asks then finish() end
return {NOW, answers}
