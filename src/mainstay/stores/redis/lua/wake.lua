-- What the subscriptions of one listener do, in order.
--
-- Arguments: [the listener, how long it may be silent (ms), steps]. A step is
--   ['enter', subscription, queues, topics]       answered with the ticks of the queues
--   ['sleep', subscription, queues, known ticks]  answered with the ticks of the queues; it sleeps only if none is new.
--                                                 Without known ticks, it entered in this very call
--   ['rise',  subscription, queues]               it is awake, whoever woke it
--   ['leave', subscription, queues, topics, passed, asleep]
--                                                 `passed` are queues it was woken for and did not look at

-- A listener renews what it watches long before; what the dead watched goes by itself.
local TOPIC_MS = 3600000
local listener = ARGS[1]

local function ticks_of(queues)
  local found = {}
  if #queues > 0 then
    for i, tick in ipairs(call('HMGET', P .. 'ticks', unpack(queues))) do found[i] = tonumber(tick or 0) end
  end
  return found
end

local does = {}

function does.enter(member, queues, topics)
  for _, topic in ipairs(topics) do
    call('SADD', P .. 'l:' .. topic, member)
    call('PEXPIRE', P .. 'l:' .. topic, TOPIC_MS)
  end
  return ticks_of(queues)
end

function does.sleep(member, queues, known)
  local ticks = ticks_of(queues)
  if known then
    for i, tick in ipairs(ticks) do
      if tick ~= known[i] then return ticks end
    end
  end
  for _, queue in ipairs(queues) do call('SADD', P .. 'l:queue:' .. queue, member) end
  return ticks
end

function does.rise(member, queues)
  for _, queue in ipairs(queues) do call('SREM', P .. 'l:queue:' .. queue, member) end
  return {}
end

function does.leave(member, queues, topics, passed, asleep)
  for _, queue in ipairs(queues) do
    -- one that slept and is not there was woken, and has not heard it yet
    if call('SREM', P .. 'l:queue:' .. queue, member) == 0 and asleep then passed[#passed + 1] = queue end
  end
  for _, topic in ipairs(topics) do call('SREM', P .. 'l:' .. topic, member) end
  for i, tick in ipairs(ticks_of(passed)) do rouse(passed[i], 1, tick) end
  return {}
end

call('SET', P .. 'ear:' .. listener, '1', 'PX', ARGS[2])
local answers = {NOW}
for i, step in ipairs(ARGS[3]) do
  answers[i + 1] = does[step[1]](listener .. ' ' .. step[2], step[3], step[4], step[5], step[6])
end
return answers
