-- writing ----------------------------------------------------------------------------------------
-- Writes collect here, in memory, until `flush` sends them in few commands: one per index and script, not one per row. A
-- script that fails or gives up before that has written nothing.

-- One page of collected writes. A row that is written twice in one script begins another page: they are sent in order.
local sets, zadds, zrems, sadds, srems, hsets, pushes, history, gone, commands
local pages, touched = {}, {}
local uniques = {} -- unique key -> the id that will hold it; false: none
local holding, tallies, flow = {}, {}, {}
-- These stay after a flush: they are for the end of the script.
local wakes, soonest, freed, settled = {}, {}, {}, {}

local function new_page()
  sets, zadds, zrems, sadds, srems, hsets, pushes, history, gone, commands = {n = 0}, {}, {}, {}, {}, {}, {}, {}, {}, {}
  pages[#pages + 1] = {
    sets = sets, zadds = zadds, zrems = zrems, sadds = sadds, srems = srems, hsets = hsets, pushes = pushes,
    history = history, gone = gone, commands = commands,
  }
  touched = {}
end

new_page()

-- A decision that others have spoilt again and again gets the turn: until it is written, or its time is over, other scripts
-- give up on its jobs, and are tried again. A script that gives up must have written nothing, so none writes by itself
-- before its first `flush`.
local TURN = call('GET', P .. 'turn')
local concerned = {} -- ids of the jobs that this script changes

local function stand_back()
  local ids = {}
  for id in pairs(concerned) do ids[#ids + 1] = id end
  for first = 1, #ids, MANY do
    local found = call('SMISMEMBER', P .. 'turn:ids', unpack(ids, first, math.min(first + MANY - 1, #ids)))
    for i = 1, #found do
      if found[i] == 1 then error({err = 'TURN another decision about these jobs goes first'}) end
    end
  end
end

-- Notes a change of a job other than its row: its waiters, its units, the part beside it.
local function concerns(id)
  if TURN then concerned[id] = true end
end

-- Names with the same beginning, each built once.
local function names(kind)
  return setmetatable({}, {__index = function(made, name)
    local full = kind .. name
    made[name] = full
    return full
  end})
end

local IN_STATUS, READY_IN, DUE_IN, HELD_BY, TOPIC_OF = names('status:'), names('ready:'), names('due:'), names('held:'),
  names('queue:')

local function gather(into, key, a, b)
  local list = into[key]
  if not list then
    list = {n = 0}
    into[key] = list
  end
  local n = list.n + 1
  list[n] = a
  if b then
    n = n + 1
    list[n] = b
  end
  list.n = n
end

local function keep(key, value)
  local n = sets.n
  sets[n + 1], sets[n + 2], sets.n = P .. key, value, n + 2
end

-- Any other command on one key; sent before the rows of its page.
local function later(command, key, ...)
  commands[#commands + 1] = {command, P .. key, ...}
end

local function set_beside(id, said, checkpoint, digest)
  local value = '\146' .. pack(said) .. '\146' .. checkpoint .. digest
  besides[id] = value
  concerns(id)
  keep('x:' .. id, value)
end

-- The holder of a unique key, with the collected writes; false for none.
local function unique_holder(key)
  if uniques[key] ~= nil then return uniques[key] end
  return call('HGET', P .. 'unique', key)
end

local function send(command, gathered)
  for key, list in pairs(gathered) do
    for first = 1, list.n, MANY do
      call(command, P .. key, unpack(list, first, math.min(first + MANY - 1, list.n)))
    end
  end
end

local function send_page(page)
  for first = 1, #page.gone, MANY do
    call('UNLINK', unpack(page.gone, first, math.min(first + MANY - 1, #page.gone)))
  end
  for _, command in ipairs(page.commands) do call(unpack(command)) end
  for first = 1, page.sets.n, MANY do
    call('MSET', unpack(page.sets, first, math.min(first + MANY - 1, page.sets.n)))
  end
  for id, events in pairs(page.history) do
    local n = 0
    for first = 1, #events, MANY do
      n = call('RPUSH', P .. 'e:' .. id, unpack(events, first, math.min(first + MANY - 1, #events)))
    end
    if n > LONG then gather(page.zadds, 'long', n, id) end
  end
  send('RPUSH', page.pushes)
  send('ZREM', page.zrems)
  send('SREM', page.srems)
  send('ZADD', page.zadds)
  send('SADD', page.sadds)
  send('HSET', page.hsets)
end

-- Writes everything that was collected: after it, rows, events, indexes and counts agree.
local function flush()
  if TURN then stand_back() end
  for _, page in ipairs(pages) do send_page(page) end
  pages = {}
  new_page()
  for key, id in pairs(uniques) do
    if id then
      call('HSET', P .. 'unique', key, id)
    else
      call('HDEL', P .. 'unique', key)
    end
  end
  for session in pairs(holding) do
    call(call('EXISTS', P .. HELD_BY[session]) == 1 and 'SADD' or 'SREM', P .. 'holders', session)
  end
  for queue, of in pairs(tallies) do
    for status, n in pairs(of) do
      local field = queue .. '\0' .. status
      if n ~= 0 and call('HINCRBY', P .. 'tallies', field, n) == 0 then call('HDEL', P .. 'tallies', field) end
    end
  end
  if next(flow) then
    local key = P .. 'flow:' .. math.floor(NOW / 60000)
    for status, n in pairs(flow) do call('HINCRBY', key, status, n) end
    call('EXPIRE', key, 3600)
  end
  uniques, holding, tallies, flow = {}, {}, {}, {}
end

local function wake(topic, n)
  wakes[topic] = (wakes[topic] or 0) + n
end

local function blocked_key(key, queue)
  return 'blocked:' .. #key .. ':' .. key .. ':' .. queue
end

-- The index of its lane, and its score in it.
local function place(row)
  local lane = row[LANE]
  if lane == READY then
    if row[LATE] then return end -- it is in `expires`, which the sweep reads
    return READY_IN[row[QUEUE]], row[RANK]
  end
  if lane == WAITING then return DUE_IN[row[QUEUE]], row[DUE] end
  if lane == BLOCKED and row[LIMITED] then return blocked_key(row[LIMITED], row[QUEUE]), row[RANK] end
  if lane == ASIDE then return 'aside', 0 end
end

local function count(queue, status, n)
  local of = tallies[queue]
  if not of then
    of = {}
    tallies[queue] = of
  end
  of[status] = (of[status] or 0) + n
end

-- Whether it is ready and its rank is not its time: such rows are also listed by both, to find the row that has waited
-- longest.
local function boosted(row)
  return row and row[LANE] == READY and not row[LATE] and row[RANK] ~= row[DUE]
end

local function index_boosted(id, old, new)
  local was, is = boosted(old), boosted(new)
  if was and not (is and new[QUEUE] == old[QUEUE]) then
    gather(zrems, 'boosted:' .. old[QUEUE], id)
    gather(zrems, 'since:' .. old[QUEUE], id)
  end
  if is then
    gather(zadds, 'boosted:' .. new[QUEUE], new[RANK], id)
    gather(zadds, 'since:' .. new[QUEUE], new[DUE], id)
  end
end

-- The list of times that it belongs to. A unit is removed with its job.
local function timed(row)
  if not row or not row[EXPIRES] then return nil end
  if not row[SETTLED] then return 'expires' end
  return not row[PARENT] and 'keep' or nil
end

-- The lists of a row that is or was routed.
function routing.index(id, new)
  local place_of = routing.places[id] or call('HGET', P .. 'route', id)
  if not place_of then return end
  if new and new[LANE] == routing.LANE then
    gather(zadds, 'routed:' .. place_of, new[RANK], id)
    gather(hsets, 'route', id, place_of)
    gather(sadds, 'routes', place_of)
  else
    gather(zrems, 'routed:' .. place_of, id)
    later('HDEL', 'route', id)
  end
end

local function index_lane(id, old, new)
  if (old and old[LANE] == routing.LANE) or (new and new[LANE] == routing.LANE) then routing.index(id, new) end
  local was, was_at, is, is_at
  if old then was, was_at = place(old) end
  if new then is, is_at = place(new) end
  if was and was ~= is then gather(zrems, was, id) end
  if is and (was ~= is or was_at ~= is_at) then gather(zadds, is, is_at, id) end
  if boosted(old) or boosted(new) then index_boosted(id, old, new) end
  if not new then return end
  local lane, before = new[LANE], old and old[LANE]
  if lane == BLOCKED and before ~= BLOCKED and new[LIMITED] then
    gather(sadds, 'blockedq:' .. new[LIMITED], new[QUEUE])
    gather(sadds, 'blockedkeys', new[LIMITED])
  elseif lane == READY and (before ~= READY or (old[LATE] and not new[LATE])) then
    wake(TOPIC_OF[new[QUEUE]], 1)
  elseif lane == WAITING and new[DUE] < NEVER and (before ~= WAITING or new[DUE] < old[DUE]) then
    local queue = new[QUEUE]
    if not soonest[queue] or new[DUE] < soonest[queue] then soonest[queue] = new[DUE] end
  end
end

-- The list of the rows that were assigned to a session.
function PLACED.index(id, old, new)
  local was = old and old[STATUS] == PLACED.ASSIGNED and old[SESSION]
  local is = new and new[STATUS] == PLACED.ASSIGNED and new[SESSION]
  if was and was ~= is then gather(srems, 'assigned:' .. was, id) end
  if is and was ~= is then gather(sadds, 'assigned:' .. is, id) end
end

-- The wakes of a unit: it was assigned to a session, or its session is asked about it again; or it was cancelled while a
-- session had it, or is placed and was taken back.
function PLACED.wake_unit(old, new)
  local status = new[STATUS]
  if status == PLACED.ASSIGNED then
    if new[SESSION] and not (old and old[VERSION] == new[VERSION]) then wake('session:' .. new[SESSION], 1) end
  elseif old and old[SESSION] and (status == PLACED.CANCELLED or (new[QUEUE] == PLACED.QUEUE and PLACED.TAKEN_BACK[status])) then
    wake('session:' .. old[SESSION], 1)
  end
end

local function index_holder(id, old, new)
  local was, is = old and old[SESSION], new and new[SESSION]
  local stopped, stops = was and STOPPING[old[STATUS]], is and STOPPING[new[STATUS]]
  if was ~= is then
    if was then
      gather(srems, HELD_BY[was], id)
      holding[was] = true
    end
    if is then
      gather(sadds, HELD_BY[is], id)
      holding[is] = true
    end
  end
  if (old and old[STATUS] == PLACED.ASSIGNED) or (new and new[STATUS] == PLACED.ASSIGNED) then PLACED.index(id, old, new) end
  if stopped and not (stops and was == is) then gather(srems, 'stopping:' .. was, id) end
  if stops and not (stopped and was == is) then
    gather(sadds, 'stopping:' .. is, id)
    wake('session:' .. is, 1)
  end
  local key = (old or new)[LIMITED]
  if not key then return end
  if was and not is then gather(srems, 'slots:' .. key, id) end
  if is and not was then gather(sadds, 'slots:' .. key, id) end
  -- a slot became free, or a ready row left without using the slot it was made ready for
  if old and not is and (was or (old[LANE] == READY and not (new and (new[LANE] == READY or new[LANE] == BLOCKED)))) then
    freed[key] = true
  end
end

local function index_end(id, old, new)
  local was, is = old and old[SETTLED], new and new[SETTLED]
  local from, to = timed(old), timed(new)
  if from and from ~= to then gather(zrems, from, id) end
  if to and (from ~= to or old[EXPIRES] ~= new[EXPIRES]) then gather(zadds, to, new[EXPIRES], id) end
  if is and not was then settled[#settled + 1] = id end
  local unique, parent = (old or new)[UNIQUE], (old or new)[PARENT]
  local open_before, open_now = old and not was, new and not is
  if open_before == open_now then return end
  if unique then
    local holder = unique_holder(unique)
    if open_now then
      if not holder then uniques[unique] = id end
    elseif open_before and holder == id then
      uniques[unique] = false
    end
  end
  if parent then
    concerns(parent)
    if open_now then
      gather(sadds, 'open:' .. parent, id)
    elseif open_before then
      gather(srems, 'open:' .. parent, id)
    end
  end
end

local function units_in(parent, status)
  return 'units:' .. parent .. ':' .. status
end

-- Updates every index for a row that was `old` (nil: none) and is `new` (nil: removed).
local function index(id, old, new)
  if touched[id] then new_page() end
  touched[id] = true
  concerns(id)
  index_lane(id, old, new)
  index_holder(id, old, new)
  index_end(id, old, new)
  local was, is = old and old[STATUS], new and new[STATUS]
  local parent = (old or new)[PARENT]
  if is and was ~= is and new[QUEUE] == PLACED.QUEUE and new[LANE] ~= READY then wake(TOPIC_OF[PLACED.QUEUE], 1) end
  if is and was ~= is and (new[QUEUE] == PLACED.QUEUE or new[QUEUE] == PLACED.LED) then wake(PLACED.TOPIC, 1) end
  if parent then
    if new then PLACED.wake_unit(old, new) end
    if was and was ~= is then gather(zrems, units_in(parent, was), id) end
    if is and was ~= is then gather(zadds, units_in(parent, is), '0', id) end
    return
  end
  if was == is and (not old or not new or old[QUEUE] == new[QUEUE]) then return end
  if was then
    if was ~= is then gather(zrems, IN_STATUS[was], id) end
    count(old[QUEUE], was, -1)
  end
  if is then
    if was ~= is then gather(zadds, IN_STATUS[is], '0', id) end
    count(new[QUEUE], is, 1)
  end
end

-- Writes an existing or a new row: `value` as it is stored, `new` the same as a table, `tail` where the rest begins. An
-- unreadable row counts as missing: the check finds its index entries.
local function put(id, value, new, tail)
  index(id, rows[id] or nil, new)
  keep('r:' .. id, value)
  values[id], rows[id], tails[id] = value, new, tail
end

-- Writes an existing row as another table; the rest of it stays.
local function replace(id, new)
  local packed = pack(new)
  put(id, '\146' .. packed .. sub(values[id], tails[id]), new, #packed + 2)
end

-- Appends sealed events, after `put`; `tos` are the states that their moves lead to.
local function append(id, events, tos, is_unit)
  local known = history[id]
  if not known then
    if #events > 0 then history[id] = events end
  else
    for i = 1, #events do known[#known + 1] = events[i] end
  end
  if not is_unit then
    for i = 1, #tos do flow[tos[i]] = (flow[tos[i]] or 0) + 1 end
  end
end

-- Writes a row with some of its fields changed.
local function set(id, fields)
  local new = copy(rows[id])
  for place_, value in pairs(fields) do new[place_] = value end
  replace(id, new)
end

-- Sets an unusable row aside.
local function set_aside(id)
  if rows[id] then
    set(id, {[LANE] = ASIDE})
  else
    gather(zadds, 'aside', 0, id)
  end
end
