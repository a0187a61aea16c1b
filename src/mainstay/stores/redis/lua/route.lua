-- Undoes claims of rows whose task the session does not have, and puts them where only sessions that have it look.
-- Arguments: id, place and expires_ms of each, session. Answers with the ids that were routed: none while a live session
-- does not say what it offers, for it would never look there.

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
    -- no worker was told of this claim, and its event is not written
    routing.places[id] = strange[2]
    set(id, {
      [STATUS] = CLAIMABLE, [VERSION] = row[VERSION] - 1, [SESSION] = false, [CLAIMED] = false, [OPEN] = false,
      [LANE] = routing.LANE, [EXPIRES] = strange[3],
    })
    if not row[PARENT] then flow['running'] = (flow['running'] or 0) - 1 end
    wakes[TOPIC_OF[row[QUEUE]]] = EVERYBODY
    done[#done + 1] = id
  elseif row and row[LANE] == routing.LANE then
    -- by this very call, whose answer was lost
    done[#done + 1] = id
  end
end
finish()
return {NOW, done}
