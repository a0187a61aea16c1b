-- Waking: who waits for what, and telling them in the script that writes. A part of the prelude: `K` is the prefix of
-- every key, "{name}:".
--
--   wake:ear:<listener>       string   there while the listener (one open store) shows signs of life; expires
--   wake:list:<listener>      list     what it is told; it blocks on this one key. Entries: "<subscription> <tick>"
--   wake:queue:<queue>        set      "<listener> <subscription>": those who sleep until a row of the queue is ready.
--                                      Taking one out is the wake
--   wake:ticks                hash     queue -> counts its wakes. Who comes to sleep says which tick it knows of, and is
--                                      turned back if there was another: so nothing is missed between looking and sleeping
--   wake:watched              set      topics ("job:<id>", "session:<id>") that anybody watches: writes look only here
--   wake:topic:<topic>        set      "<listener> <subscription>": all of them are told, every time
--
-- No more subscribers are woken than there are rows. A listener that has died is passed over; it took with it what it
-- had been told, which the poll of the others finds.

local WAKE_LIST_MS = 60000

-- Tell one subscription; false if its listener is dead.
local function wake_tell(member, tick)
  local listener, subscription = string.match(member, '^(%S+) (%S+)$')
  if not listener or redis.call('EXISTS', K .. 'wake:ear:' .. listener) == 0 then
    return false
  end
  local list = K .. 'wake:list:' .. listener
  redis.call('RPUSH', list, subscription .. ' ' .. tick)
  redis.call('PEXPIRE', list, WAKE_LIST_MS)
  return true
end

-- n rows of a queue got ready: wake at most n of those who sleep there.
local function wake_queue(queue, n)
  local tick = redis.call('HINCRBY', K .. 'wake:ticks', queue, 1)
  local ears = K .. 'wake:queue:' .. queue
  while n > 0 do
    local chosen = redis.call('SPOP', ears, n)
    if #chosen == 0 then
      return
    end
    for _, member in ipairs(chosen) do
      if wake_tell(member, tick) then
        n = n - 1
      end
    end
  end
end

-- Something happened to these ("job:<id>" settled, "session:<id>" is asked to stop): tell everybody who watches it.
local function wake_watchers(topics)
  if #topics == 0 or redis.call('EXISTS', K .. 'wake:watched') == 0 then
    return
  end
  for _, topic in ipairs(topics) do
    if redis.call('SISMEMBER', K .. 'wake:watched', topic) == 1 then
      for _, member in ipairs(redis.call('SMEMBERS', K .. 'wake:topic:' .. topic)) do
        wake_tell(member, 0)
      end
    end
  end
end
