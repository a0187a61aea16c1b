-- Makes the steps of the subscriptions of one listener, in order.
--
-- Arguments: [the listener, how long it may be silent (ms), steps]. A step is
--   ['enter', subscription, queues, topics]       returns the ticks of the queues
--   ['sleep', subscription, queues, known ticks]  returns the ticks of the queues; it sleeps only if none is new.
--                                                 Without known ticks, it entered in this very call
--   ['rise',  subscription, queues, heard]        it is awake. Returns the queues that have chosen it, if it has not
--                                                 `heard` of this yet
--   ['leave', subscription, queues, topics, passed, asleep]
--                                                 `passed` are queues it was woken for without a claim since
--
-- The reply begins with whether the listener was known to be alive; a call without steps is its sign of life.

-- A listener renews its subscriptions to topics long before; those of a dead one expire.
local TOPIC_MS = 3600000
local listener = ARGS[1]
local unheard = {} -- subscription -> queues that have chosen it, by steps of this very call

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
  for _, queue in ipairs(queues) do
    call('SADD', P .. 'l:queue:' .. queue, member)
    call('PEXPIRE', P .. 'l:queue:' .. queue, TOPIC_MS)
  end
  return ticks
end

function does.rise(member, queues, heard)
  local chosen = {}
  for _, queue in ipairs(queues) do
    if call('SREM', P .. 'l:queue:' .. queue, member) == 0 and not heard then chosen[#chosen + 1] = queue end
  end
  unheard[member] = chosen
  return chosen
end

function does.leave(member, queues, topics, passed, asleep)
  for _, queue in ipairs(unheard[member] or {}) do passed[#passed + 1] = queue end
  for _, queue in ipairs(queues) do
    -- a sleeping subscription that is not in the set was woken, and has not heard of it yet
    if call('SREM', P .. 'l:queue:' .. queue, member) == 0 and asleep then passed[#passed + 1] = queue end
  end
  for _, topic in ipairs(topics) do call('SREM', P .. 'l:' .. topic, member) end
  for i, tick in ipairs(ticks_of(passed)) do rouse(passed[i], 1, tick) end
  return {}
end

local known = call('SET', P .. 'ear:' .. listener, '1', 'PX', ARGS[2], 'GET')
local answers = {NOW, known and 1 or 0}
for i, step in ipairs(ARGS[3]) do
  answers[i + 2] = does[step[1]](listener .. ' ' .. step[2], step[3], step[4], step[5], step[6])
end
return answers
