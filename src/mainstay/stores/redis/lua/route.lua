-- Undoes claims of rows whose task the session does not have, and routes them to sessions that have it. Arguments: id,
-- place and expires_ms of each, session. Returns the ids that were routed: none while a live session announces no offer,
-- because it would never get them.

local EVERYBODY = 1000

for _, id in ipairs(call('SMEMBERS', P .. 'sessions')) do
  local found = call('HMGET', P .. 's:' .. id, 'dead', 'tasks')
  if found[1] == '0' and not found[2] then return {NOW, {}} end
end
local ids, done = {}, {}
for i, strange in ipairs(ARGS[1]) do ids[i] = strange[1] end
load(ids)
for _, strange in ipairs(ARGS[1]) do
  local id = strange[1]
  local row = rows[id]
  if row and row[SESSION] == ARGS[2] and row[OPEN] then
    -- no worker has got this claim, and its event is not written
    routing.places[id] = strange[2]
    set(id, {
      [STATUS] = CLAIMABLE, [VERSION] = row[VERSION] - 1, [SESSION] = false, [CLAIMED] = false, [OPEN] = false,
      [LANE] = routing.LANE, [EXPIRES] = strange[3],
    })
    if not row[PARENT] then flow['running'] = (flow['running'] or 0) - 1 end
    wakes[TOPIC_OF[row[QUEUE]]] = EVERYBODY
    done[#done + 1] = id
  elseif row and row[LANE] == routing.LANE then
    -- by this very call, whose reply was lost
    done[#done + 1] = id
  end
end
finish()
return {NOW, done}
