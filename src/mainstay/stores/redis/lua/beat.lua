-- Keeps sessions alive, with whatever they have to report. Arguments: sessions, reports. Answers, per session, with
-- false if it is dead or unknown, otherwise with the jobs it holds that are asked to stop.

report_all(ARGS[2])
finish()
local answer = {NOW}
for i, session in ipairs(ARGS[1]) do
  local key = P .. 's:' .. session
  if call('HGET', key, 'dead') == '0' then
    call('HSET', key, 'beat_ms', LEASE)
    answer[i + 1] = call('SMEMBERS', P .. 'stopping:' .. session)
  else
    answer[i + 1] = false
  end
end
return answer
