-- Slots of concurrency keys.

local MOST_FREED = 1000 -- rows of a queue that one script makes ready: the end of each of them makes more ready

-- Makes blocked rows of a key ready, one for each of its free slots: the best of every queue, so that a paused queue cannot
-- keep the slot from the others.
local function free_slots(key)
  local queues = call('SMEMBERS', P .. 'blockedq:' .. key)
  if #queues == 0 then return end
  table.sort(queues)
  local most = call('HGET', P .. 'limits', key)
  local free = MOST_FREED
  if most then free = math.max(0, math.min(free, tonumber(most) - call('SCARD', P .. 'slots:' .. key))) end
  local left = #queues
  for _, queue in ipairs(queues) do
    local name = blocked_key(key, queue)
    local back = free > 0 and call('ZRANGE', P .. name, 0, free - 1) or {}
    load(back)
    for _, id in ipairs(back) do
      if rows[id] then
        set(id, {[LANE] = READY})
      else
        gather(zrems, name, id)
      end
    end
    flush()
    if call('EXISTS', P .. name) == 0 then
      call('SREM', P .. 'blockedq:' .. key, queue)
      left = left - 1
    end
  end
  if left == 0 then call('SREM', P .. 'blockedkeys', key) end
end
