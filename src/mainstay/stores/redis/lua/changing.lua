-- Changing rows that are there.
--
-- A change is [id, version it was decided on, the new row, events, states moved to, the claim's event or false, the
-- progress_ms its sender saw (-1: none) or false where that does not matter, whether a last unit moves its parent].

local APPLIED, LAST, ASK = 0, 1, 2

local open_units = {} -- parent -> how many, counted once and kept in step

-- Whether somebody waits for this job who must be moved on now: that is decided elsewhere. Those who wait for others
-- besides, and for nothing but success, only wait for one less.
local function waits_end_here(id, status)
  local watchers = call('ZRANGE', P .. 'watch:' .. id, 0, -1)
  if #watchers == 0 then return true end
  if status ~= 'succeeded' then return false end
  for _, waiter in ipairs(watchers) do
    if call('SCARD', P .. 'left:' .. waiter) < 2 then return false end
  end
  for _, waiter in ipairs(watchers) do call('SREM', P .. 'left:' .. waiter, id) end
  call('DEL', P .. 'watch:' .. id)
  return true
end

local function shrinks(old, new)
  if new[TOKEN] < old[TOKEN] then return true end
  for i = STARTS, LOSSES do
    if new[i] < old[i] then return true end
  end
  return false
end

-- Writes one change; ASK, with nothing written, if it does not simply fit.
local function change(item, watched)
  local id = item[1]
  local old = rows[id]
  if not old or old[VERSION] ~= item[2] then return ASK end
  local new, tail = opened(item[3])
  if shrinks(old, new) then return ASK end
  if item[7] and (beside_of(id)[2] or -1) ~= item[7] then return ASK end
  local ends = new[SETTLED] and not old[SETTLED]
  local unique, parent, answer = new[UNIQUE], new[PARENT], APPLIED
  if unique and old[SETTLED] and not new[SETTLED] and call('HEXISTS', P .. 'unique', unique) == 1 then return ASK end
  if parent and ends then
    local open = open_units[parent] or call('SCARD', P .. 'open:' .. parent)
    if open <= 1 then
      if item[8] then return ASK end
      answer = LAST
    end
    if watched and not waits_end_here(id, new[STATUS]) then return ASK end
    open_units[parent] = open - 1
  else
    if ends and watched and not waits_end_here(id, new[STATUS]) then return ASK end
    if parent and old[SETTLED] and not new[SETTLED] then
      open_units[parent] = (open_units[parent] or call('SCARD', P .. 'open:' .. parent)) + 1
    end
  end
  local events = item[4]
  if old[OPEN] and item[6] then table.insert(events, 1, item[6]) end
  append(id, events, item[5], parent)
  put(id, item[3], new, tail)
  return answer
end

-- Writes many changes of different rows: an answer for each.
local function change_all(items)
  local ids, watch, n = {}, {}, #items
  for i = 1, n do
    ids[i] = items[i][1]
    watch[i] = P .. 'watch:' .. ids[i]
  end
  load(ids)
  local watched = false
  for first = 1, n, MANY do
    watched = call('EXISTS', unpack(watch, first, math.min(first + MANY - 1, n))) > 0 or watched
  end
  local answers = {}
  for i = 1, n do answers[i] = change(items[i], watched) end
  return answers
end

-- Takes a row out with all that hangs on it: events, refusals, what it waits for. `stone` is its tombstone, or false.
-- Who waits for it is to be moved on by whoever removes it.
local function drop(id, stone)
  local old = rows[id]
  if old then index(id, old, nil) end
  local ok, at, named = pcall(unpack_one, call('GET', P .. 'f:' .. id) or '', 1)
  if ok and at > 0 and type(named) == 'table' then
    if named[1] then gather(zrems, 'group:' .. named[1], id) end
    if named[2] then gather(zrems, 'key:' .. named[2], id) end
    for _, tag in ipairs(named[3] or {}) do gather(zrems, 'tag:' .. tag, id) end
  end
  if old and old[PARENT] then gather(zrems, 'units:' .. old[PARENT], id) end
  for _, on in ipairs(call('SMEMBERS', P .. 'left:' .. id)) do gather(zrems, 'watch:' .. on, id) end
  gather(zrems, 'all', id)
  gather(zrems, 'long', id)
  gather(zrems, 'aside', id)
  flush()
  call('DEL', P .. 'r:' .. id, P .. 'f:' .. id, P .. 'x:' .. id, P .. 'e:' .. id, P .. 'refusals:' .. id, P .. 'on:' .. id,
    P .. 'left:' .. id, P .. 'units:' .. id, P .. 'open:' .. id)
  if stone then
    call('RPUSH', P .. 'e:' .. id, stone)
    call('ZADD', P .. 'gone', 0, id)
  end
  values[id], rows[id] = false, false
end
