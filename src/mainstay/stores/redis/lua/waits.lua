-- The check of waits. Arguments: some ids, whether to repair what needs no decision. Returns [what, id, ...] for each
-- finding.

local found = {}
local ids = ARGS[1]

load(ids)
for _, id in ipairs(ids) do
  local row = rows[id]
  local left = call('SMEMBERS', P .. 'left:' .. id)
  for _, on in ipairs(left) do
    local awaited = row_of(on)
    if not there(on) then
      found[#found + 1] = {'missed', on, id, GONE}
    elseif awaited and awaited[SETTLED] then
      found[#found + 1] = {'missed', on, id, awaited[STATUS]}
    elseif not call('ZSCORE', P .. 'watch:' .. on, id) then
      found[#found + 1] = {'unlisted', id, on}
    end
  end
  for _, waiter in ipairs(call('ZRANGE', P .. 'watch:' .. id, 0, -1)) do
    if not there(waiter) then
      found[#found + 1] = {'stray', waiter}
      if ARGS[2] then
        call('ZREM', P .. 'watch:' .. id, waiter)
        call('DEL', P .. 'left:' .. waiter, P .. 'on:' .. waiter)
      end
    end
  end
  if row and row[LANE] == WAITING and row[DUE] == AWAITS and not row[SETTLED] and #left == 0 then
    found[#found + 1] = {'stranded', id}
  end
end
return {NOW, found}
