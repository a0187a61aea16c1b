-- Keeps sessions alive, and records their reports. Arguments: sessions, reports. Returns, per session, false if it is
-- dead or unknown, otherwise its jobs that have to stop, those that were assigned to it, and the actor that asked it to
-- drain.

-- The rows that are assigned to a session and wait for its confirmation.
local function assigned_to(session)
  local ids, found = call('SMEMBERS', P .. 'assigned:' .. session), {}
  load(ids)
  for _, id in ipairs(ids) do
    local row = rows[id]
    if row and row[SESSION] == session and row[STATUS] == PLACED.ASSIGNED then
      found[#found + 1] = id
    elseif row or not there(id) then
      call('SREM', P .. 'assigned:' .. session, id)
    end
  end
  return found
end

report_all(ARGS[2])
finish()
local answer = {NOW}
for i, session in ipairs(ARGS[1]) do
  local key = P .. 's:' .. session
  local found = call('HMGET', key, 'dead', 'draining_by', 'lost_ms')
  if found[1] == '0' then
    call('HSET', key, 'beat_ms', LEASE)
    -- it is alive without a subscriber: the lease decides until it has one again
    if found[3] then call('HDEL', key, 'lost_ms', 'linked') end
    answer[i + 1] = {call('SMEMBERS', P .. 'stopping:' .. session), assigned_to(session), found[2]}
  else
    answer[i + 1] = false
  end
end
return answer
