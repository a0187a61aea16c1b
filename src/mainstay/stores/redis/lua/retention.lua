-- Retention, in short steps. Arguments: the leadership or false, the operation, and its arguments. Returns 'deposed' with
-- the current holder and epoch, or 'done' and the result.

local SOME_QUEUES = 100
local does = {}

-- Whether all units of a job are settled.
local function closed(id)
  return call('EXISTS', P .. 'open:' .. id) == 0
end

-- Removes a job, its units first, at most `room` rows. Returns the number of rows, and whether the job was removed. A job
-- that must wait for the next step is settled, so its missing units do no harm.
local function remove(id, room)
  local units = call('ZRANGE', P .. 'units:' .. id, 0, room - 1)
  load(units)
  for _, unit in ipairs(units) do drop(unit, false) end
  if #units == room then return room, false end
  drop(id, false)
  return #units + 1, true
end

-- Removes the jobs among these that may be removed, at most `most` jobs and `room` rows. Returns the number of removed
-- jobs, the number of jobs that were skipped before the first one that remains to be removed, and whether there may be
-- such a job.
local function remove_some(ids, most, room, may_go)
  local jobs, passed = 0, 0
  load(ids)
  for _, id in ipairs(ids) do
    local row = rows[id]
    if row and row[SETTLED] and not row[PARENT] and may_go(row) and closed(id) then
      if jobs == most or room == 0 then return jobs, passed, true end
      local gone, whole = remove(id, room)
      room = room - gone
      if not whole then return jobs, passed, true end
      jobs = jobs + 1
    else
      passed = passed + 1
    end
  end
  return jobs, passed, false
end

-- Walks the jobs of a status after an id, and removes those that may be removed. Returns their number, the id to continue
-- from, '' at the end, and the last of the first jobs that are kept by their own retention: no walk needs to read these
-- again.
local function walk(status, after, below, most, room, look, may_go)
  local low = after == '' and '-' or '(' .. after
  local ids = call('ZRANGE', P .. 'status:' .. status, low, below, 'BYLEX', 'LIMIT', 0, look)
  local kept = after
  load(ids)
  for _, id in ipairs(ids) do
    if not (rows[id] and rows[id][EXPIRES]) then break end
    kept = id
  end
  local jobs, passed, more = remove_some(ids, most, room, function(row) return not row[EXPIRES] and may_go(row) end)
  finish()
  local last = ''
  if more then
    last = after -- the skipped jobs are read again: some of them may be removable by now
  elseif #ids == look then
    last = ids[look]
  end
  return {NOW, 'done', jobs, last, more and 1 or 0, kept}
end

-- Jobs of a status that settled before a time. A job settles after it was created, so the walk ends at the first id that
-- was created after that time.
function does.settled(status, after, most, room, look, below, before_ms)
  return walk(status, after, '(' .. below, most, room, look, function(row) return row[SETTLED] < before_ms end)
end

-- The oldest jobs of a status with too many jobs.
function does.excess(status, after, most, room, look, keep)
  local excess = math.min(most, call('ZCARD', P .. 'status:' .. status) - keep)
  if excess <= 0 then return {NOW, 'done', 0, '', 0, ''} end
  return walk(status, after, '+', excess, room, look, function() return true end)
end

-- Jobs whose own retention is over; the first `passed` of them were read, and stay. Returns the number of removed and of
-- skipped jobs, and whether there may be more.
function does.kept(most, room, look, passed)
  local ids = call('ZRANGE', P .. 'keep', '-inf', NOW, 'BYSCORE', 'LIMIT', passed, look)
  local jobs, stay, more = remove_some(ids, most, room, function() return true end)
  finish()
  return {NOW, 'done', jobs, stay, (more or #ids == look) and 1 or 0}
end

-- Removes units of a settled job, before the job itself is deleted. Returns their number. Units that other jobs wait for
-- are deleted with the job. `version`: only while the job has this version, or false.
function does.units(id, room, version)
  local row = row_of(id)
  if row and version and row[VERSION] ~= version then return {NOW, 'done', 0} end
  if not row or not row[SETTLED] or not closed(id) then return {NOW, 'done', 0} end
  local units, n = call('ZRANGE', P .. 'units:' .. id, 0, room - 1), 0
  load(units)
  for _, unit in ipairs(units) do
    if rows[unit] and rows[unit][SETTLED] and call('EXISTS', P .. 'watch:' .. unit) == 0 then
      drop(unit, false)
      n = n + 1
    end
  end
  finish()
  return {NOW, 'done', n}
end

-- Trims the histories of these jobs, or of jobs with long ones, to their `keep` newest events. Returns the number of events
-- and of jobs.
function does.events(keep, room, ids)
  if not ids then ids = call('ZRANGE', P .. 'long', '(' .. (keep - 1), '+inf', 'BYSCORE', 'LIMIT', 0, room * 2) end
  local jobs, events = 0, 0
  load(ids)
  for _, id in ipairs(ids) do
    local row, key = rows[id], P .. 'e:' .. id
    local n = call('LLEN', key)
    -- the event of an open claim counts, although it is not written yet
    local surplus = row and math.min(n, n + (row[OPEN] and 1 or 0) - keep) or 0
    local event = surplus > 0 and call('LINDEX', key, surplus - 1) or ''
    local ok, _, seq = pcall(unpack_one, event, 1)
    local digest = sub(event, -34) -- the last of its values, 32 bytes
    -- if that event is unreadable, the history is damaged: the check reports it, and the other jobs are trimmed
    if ok and type(seq) == 'number' and sub(digest, 1, 2) == '\196\32' then
      local said, checkpoint = beside_of(id)
      said[3] = seq
      set_beside(id, said, checkpoint, digest)
      later('LTRIM', 'e:' .. id, surplus, -1)
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

-- Removes expired idempotency keys, and ticks that are older than the last one decides. And, for some queues, the number
-- of their wakes, if they are empty and have no subscriber.
function does.keys(room, ticks_kept_ms)
  for _, queue in ipairs(call('HRANDFIELD', P .. 'ticks', SOME_QUEUES)) do
    if call('EXISTS', P .. 'ready:' .. queue, P .. 'due:' .. queue, P .. 'l:queue:' .. queue) == 0 then
      call('HDEL', P .. 'ticks', queue)
    end
  end
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

local now = deposed(ARGS[1])
if now then return {NOW, 'deposed', now[1], now[2]} end
return does[ARGS[2]](unpack(ARGS, 3))
