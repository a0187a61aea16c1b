-- Keeps sessions alive, and records their reports. Arguments: sessions, reports. Returns, per session, false if it is
-- dead or unknown, otherwise its jobs that have to stop, and the actor that asked it to drain.

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
    answer[i + 1] = {call('SMEMBERS', P .. 'stopping:' .. session), found[2]}
  else
    answer[i + 1] = false
  end
end
return answer
