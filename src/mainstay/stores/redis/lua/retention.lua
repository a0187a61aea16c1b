-- Letting go by policy, one short step at a time. Arguments: the leadership or false, what to do, and what it takes.
-- Answers 'deposed', or 'done' and what came of it.

local does = {}

-- Whether all units of a job are settled.
local function closed(id)
  return call('EXISTS', P .. 'open:' .. id) == 0
end

-- Takes a job out with its units.
local function remove(id)
  local units = call('ZRANGE', P .. 'units:' .. id, 0, -1)
  load(units)
  for _, unit in ipairs(units) do drop(unit, false) end
  drop(id, false)
end

-- Walks the jobs of a status from an id on, and removes those that may go, `room` at most: answers with how many, and
-- with the id to go on from, '' at the end.
local function walk(status, after, below, room, look, may_go)
  local low = after == '' and '-' or '(' .. after
  local ids = call('ZRANGE', P .. 'status:' .. status, low, below, 'BYLEX', 'LIMIT', 0, look)
  local n, last = 0, ''
  load(ids)
  for i, id in ipairs(ids) do
    local row = rows[id]
    if row and row[SETTLED] and not row[EXPIRES] and may_go(row) and closed(id) then
      remove(id)
      n = n + 1
    end
    if n == room then
      finish()
      return {NOW, 'done', n, ''}
    end
    if i == look then last = id end
  end
  finish()
  return {NOW, 'done', n, last}
end

-- Jobs of a status that settled before a time. A job settles after it was made, so the walk ends at the first id made
-- after that time.
function does.settled(status, after, below, room, look, before_ms)
  return walk(status, after, '(' .. below, room, look, function(row) return row[SETTLED] < before_ms end)
end

-- The oldest jobs of a status that has too many.
function does.excess(status, after, most, room, look)
  local excess = math.min(room, call('ZCARD', P .. 'status:' .. status) - most)
  if excess <= 0 then return {NOW, 'done', 0, ''} end
  return walk(status, after, '+', excess, look, function() return true end)
end

-- Jobs whose own retention is over.
function does.kept(room)
  local ids, n = call('ZRANGE', P .. 'keep', '-inf', NOW, 'BYSCORE', 'LIMIT', 0, room * 2), 0
  load(ids)
  for _, id in ipairs(ids) do
    local row = rows[id]
    if row and not row[PARENT] and row[SETTLED] and closed(id) then
      remove(id)
      n = n + 1
    end
    if n == room then break end
  end
  finish()
  return {NOW, 'done', n}
end

-- Trims the histories of these jobs, or of those known to be long, to their `keep` newest events: answers with how many
-- events of how many jobs.
function does.events(keep, room, ids)
  if not ids then ids = call('ZRANGE', P .. 'long', '(' .. (keep - 1), '+inf', 'BYSCORE', 'LIMIT', 0, room * 2) end
  local jobs, events = 0, 0
  load(ids)
  for _, id in ipairs(ids) do
    local row, key = rows[id], P .. 'e:' .. id
    local n = call('LLEN', key)
    -- the event of an open claim counts, though it is not written yet
    local surplus = row and math.min(n, n + (row[OPEN] and 1 or 0) - keep) or 0
    local event = surplus > 0 and call('LINDEX', key, surplus - 1) or ''
    local ok, _, seq = pcall(unpack_one, event, 1)
    local digest = sub(event, -34) -- the last of its values, 32 bytes
    -- where that event cannot be read the history is broken: the check's business, and not in the way of the others
    if ok and type(seq) == 'number' and sub(digest, 1, 2) == '\196\32' then
      local said, checkpoint = beside_of(id)
      said[3] = seq
      set_beside(id, said, checkpoint, digest)
      call('LTRIM', key, surplus, -1)
      if n - surplus > LONG then
        gather(zadds, 'long', n - surplus, id)
      else
        gather(zrems, 'long', id)
      end
      jobs, events = jobs + 1, events + surplus
      if jobs == room then break end
    end
  end
  finish()
  return {NOW, 'done', events, jobs}
end

-- Idempotency keys that are over, and ticks that can be judged by the last one.
function does.keys(room, ticks_kept_ms)
  local fields = call('ZRANGE', P .. 'keysuntil', '-inf', NOW, 'BYSCORE', 'LIMIT', 0, room)
  for first = 1, #fields, MANY do
    local last = math.min(first + MANY - 1, #fields)
    call('HDEL', P .. 'keys', unpack(fields, first, last))
    call('ZREM', P .. 'keysuntil', unpack(fields, first, last))
  end
  for _, name in ipairs(call('SMEMBERS', P .. 'schedules')) do
    local known = tonumber(call('HGET', P .. 'schedule:' .. name, 'last') or '')
    if known then call('ZREMRANGEBYSCORE', P .. 'ticked:' .. name, '-inf', '(' .. (known - ticks_kept_ms)) end
  end
  return {NOW, 'done', #fields}
end

if deposed(ARGS[1]) then return {NOW, 'deposed'} end
return does[ARGS[2]](unpack(ARGS, 3))
