-- Takes the turn to write some jobs, if no other decision has it, or gives it back. Arguments: 'take' or 'leave', the name
-- of the decision, and to take it its duration (ms) and the jobs. Returns 1 if the decision has the turn.

local WHAT, WHO, MS, IDS = ARGS[1], ARGS[2], ARGS[3], ARGS[4]
local holder = call('GET', P .. 'turn')

if WHAT == 'leave' then
  if holder == WHO then call('DEL', P .. 'turn', P .. 'turn:ids') end
  return {NOW, 0}
end
if holder and holder ~= WHO then return {NOW, 0} end
for first = 1, #IDS, MANY do
  call('SADD', P .. 'turn:ids', unpack(IDS, first, math.min(first + MANY - 1, #IDS)))
end
call('SET', P .. 'turn', WHO, 'PX', MS)
call('PEXPIRE', P .. 'turn:ids', MS)
return {NOW, 1}
