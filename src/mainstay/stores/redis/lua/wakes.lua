-- waking -----------------------------------------------------------------------------------------
-- wake.lua adds and removes subscribers. Those of a queue sleep in l:queue:<queue>, and removing one is the wake: no more
-- are woken than there are rows. Those of a job or a session are all woken, every time. A dead listener is skipped.

-- Wakes one subscription; false if its listener is dead.
local function tell(member, text)
  local listener, subscription = string.match(member, '^(%S+) (%S+)$')
  if not listener or call('EXISTS', P .. 'ear:' .. listener) == 0 then return false end
  call('RPUSH', P .. 'w:' .. listener, subscription .. text)
  call('PEXPIRE', P .. 'w:' .. listener, 60000)
  return true
end

local function rouse(queue, n, tick)
  while n > 0 do
    local chosen = call('SPOP', P .. 'l:queue:' .. queue, n)
    if #chosen == 0 then return end
    for _, member in ipairs(chosen) do
      if tell(member, ' ' .. tick .. ' ' .. queue) then n = n - 1 end
    end
  end
end

local function deliver(topic, n)
  if sub(topic, 1, 6) == 'queue:' then
    local queue = sub(topic, 7)
    local tick = call('HINCRBY', P .. 'ticks', queue, 1)
    if tick == 1 then
      -- retention removes the ticks of unused queues: a number that a subscriber knows must not be used again
      tick = REAL
      call('HSET', P .. 'ticks', queue, tick)
    end
    return rouse(queue, n, tick)
  end
  for _, member in ipairs(call('SMEMBERS', P .. 'l:' .. topic)) do
    if not tell(member, '') then call('SREM', P .. 'l:' .. topic, member) end
  end
end

local function deliver_settled()
  local keys, n = {}, #settled
  for i = 1, n do keys[i] = P .. 'l:job:' .. settled[i] end
  local some = false
  for first = 1, n, MANY do
    some = call('EXISTS', unpack(keys, first, math.min(first + MANY - 1, n))) > 0 or some
  end
  if not some then return end
  for i = 1, n do deliver('job:' .. settled[i], 1) end
end

-- The last step of every script that writes: the collected writes, the slots that became free, and the wakes.
local function finish()
  flush()
  TURN = nil -- it is written; its consequences must be written as well
  for key in pairs(freed) do free_slots(key) end
  for queue, at in pairs(soonest) do
    -- rows whose time has passed do not count: in a queue without workers they stay
    local sooner = call('ZRANGE', P .. 'due:' .. queue, '(' .. NOW, '(' .. at, 'BYSCORE', 'LIMIT', 0, 1)
    local topic = 'queue:' .. queue
    if #sooner == 0 and (wakes[topic] or 0) < 1 then wakes[topic] = 1 end
  end
  for topic, n in pairs(wakes) do
    if n > 0 then deliver(topic, n) end
  end
  if #settled > 0 then deliver_settled() end
end
