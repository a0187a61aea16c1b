-- Sessions, leadership, queue settings, limits and schedules. Arguments: the operation, and its arguments.
--
-- Keys beside those of the prelude:
--   s:<session>       hash     the columns of `stores/records.py` except the id and those without a value (and nonce,
--                              claimed); linked: the run of the server on which its process has subscribed to the channel
--                              alive:<session>; lost_ms: since when that has had no subscriber; offer and tasks
--   leads             set      names of leaderships
--   queues            hash     queue -> JSON of an operator's settings
--   schedules         set      names of schedules
--   schedule:<name>   hash     spec, paused (0 or 1), last (the last tick, '' for none)
--   ticked:<name>     zset     times of ticks that have submitted their jobs (score: the time)
--   facts             hash     of the namespace: run (the server's run_id), back_ms (when it was first seen after a
--                              restart), forced_ms (when a call last waited for the disk)
--   meta              hash     version (of the layout), audit (the fingerprint of the key that seals the trail)

local MOST_WOKEN = 1000 -- the most subscribers to wake
local does = {}

-- While the server was down no session could send a heartbeat, so silence counts from the time it was back.
local function back_ms()
  local run = string.match(call('INFO', 'server'), 'run_id:(%w+)')
  local facts = call('HMGET', P .. 'facts', 'run', 'back_ms')
  if not run or run == facts[1] then return tonumber(facts[2] or 0), run end
  local back = facts[1] and LEASE or 0
  call('HSET', P .. 'facts', 'run', run, 'back_ms', back)
  return back, run
end

-- The sessions that had a subscriber on this run of the server, and have none now. A process gets a second to subscribe
-- again, or two if other workers have lost theirs at the same time. Returns the ids of those whose time is over, and
-- whether there are others.
local function unlinked(sessions, run)
  local linked, channels, suspects, workers, gone = {}, {}, {}, {}, {}
  for _, id in ipairs(sessions) do
    local found = call('HMGET', P .. 's:' .. id, 'linked', 'lost_ms', 'worker', 'host')
    if run and found[1] == run then
      linked[#linked + 1] = {id, tonumber(found[2] or ''), (found[3] or '') .. '@' .. (found[4] or '')}
      channels[#channels + 1] = P .. 'alive:' .. id
    elseif found[2] then
      call('HDEL', P .. 's:' .. id, 'lost_ms')
    end
  end
  local workers_lost = 0
  for first = 1, #channels, 1000 do
    local counts = redis.pcall('PUBSUB', 'NUMSUB', unpack(channels, first, math.min(first + 999, #channels)))
    if counts.err then return gone, false end -- this user may not read it; the lease decides
    for i = first, math.min(first + 999, #channels) do
      local session = linked[i]
      if tonumber(counts[2 * (i - first) + 2]) > 0 then
        if session[2] then call('HDEL', P .. 's:' .. session[1], 'lost_ms') end
      else
        suspects[#suspects + 1] = session
        if not workers[session[3]] then workers[session[3]], workers_lost = true, workers_lost + 1 end
      end
    end
  end
  local patience_ms = workers_lost > 1 and 2000 or 1000
  local more = false
  for _, session in ipairs(suspects) do
    if not session[2] then call('HSET', P .. 's:' .. session[1], 'lost_ms', LEASE) end
    if session[2] and LEASE - session[2] >= patience_ms then
      gone[session[1]] = true
    else
      more = true
    end
  end
  return gone, more
end

-- Ends every leadership of a dead session.
local function depose(session)
  for _, name in ipairs(call('SMEMBERS', P .. 'leads')) do
    if call('HGET', P .. 'lead:' .. name, 'holder') == session then call('HSET', P .. 'lead:' .. name, 'until_ms', 0) end
  end
end

-- Removes a dead session, unless it still holds rows: then it stays, dead, until the sweep takes them back.
local function bury(session)
  if call('EXISTS', P .. 'held:' .. session) == 0 then
    call('DEL', P .. 's:' .. session, P .. 'stopping:' .. session, P .. 'assigned:' .. session)
    call('SREM', P .. 'sessions', session)
  end
end

-- Marks a new namespace. Returns the version of its layout, the fingerprint of its audit key, and the oldest version of
-- programs that can use the layout (its own version, if that was not recorded).
function does.admit(version, audit, compatible)
  local found = call('HMGET', P .. 'meta', 'version', 'audit', 'compatible_from')
  if not found[1] then
    call('HSET', P .. 'meta', 'version', version, 'compatible_from', compatible)
    found[1], found[3] = tostring(version), tostring(compatible)
  end
  if not found[2] then call('HSET', P .. 'meta', 'audit', audit) end
  return {NOW, found[1], found[2] or audit, found[3] or found[1]}
end

-- Opens a session: its fields with their values. An open session keeps the fields that others have written; one that is
-- dead, and still has rows, begins again.
function does.open(id, fields, more, offer, tasks)
  local key = P .. 's:' .. id
  if not is_open(id) then
    call('DEL', key)
    call('HSET', key, unpack(fields))
    if call('HGET', key, 'started_ms') == '0' then call('HSET', key, 'started_ms', NOW) end
  end
  call('HSET', key, 'beat_ms', LEASE)
  if more then
    call('HSET', key, 'more', more)
  else
    call('HDEL', key, 'more')
  end
  if offer then
    call('HSET', key, 'offer', offer, 'tasks', pack(tasks))
  else
    call('HDEL', key, 'offer', 'tasks')
  end
  call('SADD', P .. 'sessions', id)
  back_ms()
  return {NOW}
end

-- The process of these sessions has subscribed to their channels.
function does.link(sessions)
  local _, run = back_ms()
  for _, id in ipairs(sessions) do
    local key = P .. 's:' .. id
    if run and call('HGET', key, 'dead') == '0' then
      call('HSET', key, 'linked', run)
      call('HDEL', key, 'lost_ms')
    end
  end
  return {NOW}
end

-- Asks sessions to drain; the first actor stays on record. Returns, per session, whether it is alive.
function does.drain(sessions, by)
  local answer = {NOW}
  for i, id in ipairs(sessions) do
    local key = P .. 's:' .. id
    local found = call('HMGET', key, 'dead', 'draining_ms')
    if found[1] == '0' and not found[2] then call('HSET', key, 'draining_ms', NOW, 'draining_by', by) end
    answer[i + 1] = found[1] == '0' and 1 or 0
  end
  return answer
end

-- Ends a session; with a leadership, returns 'deposed' with the current holder and epoch if that is over.
function does.close(id, lead)
  local now = deposed(lead)
  if now and not (AGAIN and not is_open(id)) then return {NOW, 'deposed', now[1], now[2]} end
  if call('EXISTS', P .. 's:' .. id) == 1 then call('HSET', P .. 's:' .. id, 'dead', 1) end
  depose(id)
  bury(id)
  return {NOW, 'done'}
end

-- All sessions: of each its id and these fields.
function does.sessions(fields)
  local answer = {NOW}
  for i, id in ipairs(call('SMEMBERS', P .. 'sessions')) do
    local found = call('HMGET', P .. 's:' .. id, unpack(fields))
    table.insert(found, 1, id)
    answer[i + 1] = found
  end
  return answer
end

-- Declares dead sessions dead, then returns their jobs and the jobs that are past their time: cause, id, row, fixed part
-- and the part beside it, for each. And 'suspected' if a session may be declared dead in a moment. A call that was sent
-- two seconds ago or more (by the server's clock) declares no session dead: the server or the caller stood still, and
-- heartbeats may be queued behind the call.
function does.overdue(limit, sent_ms)
  local late = sent_ms and LEASE - sent_ms >= 2000
  local back, run = back_ms()
  local dead, alive, sessions = {}, {}, call('SMEMBERS', P .. 'sessions')
  local gone, suspected = {}, false
  if not late then gone, suspected = unlinked(sessions, run) end
  for _, id in ipairs(sessions) do
    local found = call('HMGET', P .. 's:' .. id, 'dead', 'beat_ms', 'lease_s')
    local silent = LEASE - math.max(tonumber(found[2]) or 0, back) > (tonumber(found[3]) or 0) * 1000
    if found[1] == '0' and not late and (silent or gone[id]) then
      call('HSET', P .. 's:' .. id, 'dead', 1)
      depose(id)
      found[1] = '1'
    end
    if found[1] == '0' then
      alive[id] = true
    else
      dead[#dead + 1] = id
    end
  end
  local ids, causes = {}, {}
  local function add(id, cause)
    if #ids < limit and not causes[id] then ids[#ids + 1], causes[id] = id, cause end
  end
  local holders = call('SMEMBERS', P .. 'holders')
  table.sort(holders)
  for _, holder in ipairs(holders) do
    if not alive[holder] and #ids < limit then
      for _, id in ipairs(call('SRANDMEMBER', P .. 'held:' .. holder, limit)) do add(id, 'session') end
    end
  end
  if #ids < limit then
    for _, id in ipairs(call('ZRANGE', P .. 'expires', '-inf', NOW, 'BYSCORE', 'LIMIT', 0, limit)) do add(id, 'time') end
  end
  for _, id in ipairs(dead) do bury(id) end
  local answer = {NOW}
  for first = 1, #ids, 1000 do
    local keys = {}
    for i = first, math.min(first + 999, #ids) do
      local n = #keys
      keys[n + 1], keys[n + 2], keys[n + 3] = P .. 'r:' .. ids[i], P .. 'f:' .. ids[i], P .. 'x:' .. ids[i]
    end
    local found = call('MGET', unpack(keys))
    for i = first, math.min(first + 999, #ids) do
      local at = 3 * (i - first)
      answer[#answer + 1] = {causes[ids[i]], ids[i], found[at + 1], found[at + 2], found[at + 3]}
    end
  end
  if suspected then answer[#answer + 1] = {'suspected', ''} end
  return answer
end

-- Takes, keeps or reads a leadership: holder, epoch, until_ms.
function does.lead(name, session, ttl_ms)
  local key = P .. 'lead:' .. name
  local found = call('HMGET', key, 'holder', 'epoch', 'until_ms')
  local holder, epoch, until_ms = found[1], tonumber(found[2] or 1), tonumber(found[3] or 0)
  if holder and holder ~= session then
    -- Of an unknown holder only the time counts. A lead that ends later than its holder can have requested is taken over:
    -- there would be no leader until then.
    if until_ms > LEASE and until_ms <= LEASE + 2 * ttl_ms and call('HGET', P .. 's:' .. holder, 'dead') ~= '1' then
      return {NOW, holder, epoch, string.format('%d', until_ms)}
    end
    epoch = epoch + 1
  end
  until_ms = LEASE + ttl_ms
  call('HSET', key, 'holder', session, 'epoch', epoch, 'until_ms', until_ms)
  call('SADD', P .. 'leads', name)
  return {NOW, session, epoch, string.format('%d', until_ms)}
end

function does.resign(name, holder, epoch)
  local key = P .. 'lead:' .. name
  local found = call('HMGET', key, 'holder', 'epoch')
  if found[1] == holder and tonumber(found[2]) == epoch then call('HSET', key, 'until_ms', 0) end
  return {NOW}
end

function does.set_queue(queue, paused, text)
  call('HSET', P .. 'queues', queue, text)
  if paused then
    call('SADD', P .. 'paused', queue)
  else
    call('SREM', P .. 'paused', queue)
    local ready = call('ZCARD', P .. 'ready:' .. queue) + call('ZCOUNT', P .. 'due:' .. queue, '-inf', NOW)
    wake('queue:' .. queue, math.min(ready, MOST_WOKEN))
    finish()
  end
  return {NOW}
end

function does.set_limit(key, most)
  if most then
    call('HSET', P .. 'limits', key, most)
  else
    call('HDEL', P .. 'limits', key)
  end
  freed[key] = true
  finish()
  return {NOW}
end

function does.put_schedule(name, spec, paused, last)
  local key = P .. 'schedule:' .. name
  local found = call('HMGET', key, 'paused', 'last')
  local known = tonumber(found[2] or '')
  if known and (not last or known > last) then last = known end
  call('HSET', key, 'spec', spec, 'paused', found[1] or (paused and 1 or 0), 'last', last or '')
  call('SADD', P .. 'schedules', name)
  return {NOW}
end

function does.pause_schedule(name, paused)
  if call('EXISTS', P .. 'schedule:' .. name) == 0 then return {NOW, 0} end
  call('HSET', P .. 'schedule:' .. name, 'paused', paused and 1 or 0)
  return {NOW, 1}
end

function does.drop_schedule(name)
  call('SREM', P .. 'schedules', name)
  call('DEL', P .. 'ticked:' .. name)
  return {NOW, call('DEL', P .. 'schedule:' .. name)}
end

function does.schedules()
  local answer = {NOW}
  for i, name in ipairs(call('SMEMBERS', P .. 'schedules')) do
    local found = call('HMGET', P .. 'schedule:' .. name, 'spec', 'paused', 'last')
    table.insert(found, 1, name)
    answer[i + 1] = found
  end
  return answer
end

return does[ARGS[1]](unpack(ARGS, 2))
