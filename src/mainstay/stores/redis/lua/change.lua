-- Changing existing rows.

-- A change is [id, version it was decided on, the new row, events, states moved to, the claim's event or false, the
-- progress_ms that its sender saw (-1: none) or false if it does not matter, whether a last unit moves its parent, the
-- holder and the time of its claim as its sender saw them (or false)]. The last two because a crashed server may have
-- lost a claim whose holder is alive, and used its version and token again since.
local C_ID, C_VERSION, C_ROW, C_EVENTS, C_TOS, C_CLAIM, C_SEEN, C_MOVES_PARENT = 1, 2, 3, 4, 5, 6, 7, 8
local C_SESSION, C_CLAIMED = 9, 10

-- The outcome of a change: it fits; it fits, and was that of the last unit of its parent; it needs a decision.
local APPLIED, LAST, ASK = '0', '1', '2'

local open_units, left_of = {}, {} -- parent -> its open units; waiter -> the jobs it waits for; counted once, then updated

local function open_units_of(parent)
  local n = open_units[parent]
  if not n then
    n = call('SCARD', P .. 'open:' .. parent)
    open_units[parent] = n
  end
  return n
end

-- A job no longer waits for another.
local function let_go(waiter, on)
  gather(srems, 'left:' .. waiter, on)
  gather(zrems, 'watch:' .. on, waiter)
  concerns(waiter)
end

-- Ends the waits for a settled job; false if a waiter must move on now, which is decided elsewhere. A waiter that waits
-- for other jobs as well, and not for a success that did not happen, only waits for one job less.
local function waits_end_here(id, status)
  local watchers = call('ZRANGE', P .. 'watch:' .. id, 0, -1, 'WITHSCORES')
  for i = 1, #watchers, 2 do
    local waiter = watchers[i]
    if status ~= 'succeeded' and watchers[i + 1] ~= '1' then return false end
    left_of[waiter] = left_of[waiter] or call('SCARD', P .. 'left:' .. waiter)
    if left_of[waiter] < 2 then return false end
  end
  for i = 1, #watchers, 2 do
    let_go(watchers[i], id)
    left_of[watchers[i]] = left_of[watchers[i]] - 1
  end
  return true
end

local function shrinks(old, new)
  if new[TOKEN] < old[TOKEN] then return true end
  for i = STARTS, LOSSES do
    if new[i] < old[i] then return true end
  end
  return false
end

-- Whether this very change was made before, and its reply lost: its last event is the last one stored.
local function is_written(item)
  local events = item[C_EVENTS]
  return AGAIN and #events > 0 and call('LINDEX', P .. 'e:' .. item[C_ID], -1) == events[#events]
end

-- Makes one change; ASK, with nothing collected, if it does not simply fit.
local function change(item, watched)
  local id = item[C_ID]
  local old = rows[id]
  if not old then return ASK end
  local new, tail = opened(item[C_ROW])
  local parent, answer = new[PARENT], APPLIED
  if old[VERSION] ~= item[C_VERSION] then
    if not is_written(item) then return ASK end
    local last = parent and new[SETTLED] and not item[C_MOVES_PARENT] and open_units_of(parent) == 0
    return last and LAST or APPLIED
  end
  if old[SESSION] ~= item[C_SESSION] or old[CLAIMED] ~= item[C_CLAIMED] then return ASK end
  if shrinks(old, new) then return ASK end
  if new[SESSION] and new[SESSION] ~= old[SESSION] and not is_open(new[SESSION]) then return ASK end
  if item[C_SEEN] and (beside_of(id)[2] or -1) ~= item[C_SEEN] then return ASK end
  local ends, begins = new[SETTLED] and not old[SETTLED], old[SETTLED] and not new[SETTLED]
  if begins and new[UNIQUE] and unique_holder(new[UNIQUE]) then return ASK end
  if ends and parent and open_units_of(parent) <= 1 then
    if item[C_MOVES_PARENT] then return ASK end
    answer = LAST
  end
  if ends and watched and not waits_end_here(id, new[STATUS]) then return ASK end
  if parent and (ends or begins) then open_units[parent] = open_units_of(parent) + (ends and -1 or 1) end
  local events = item[C_EVENTS]
  if old[OPEN] and item[C_CLAIM] then table.insert(events, 1, item[C_CLAIM]) end
  put(id, item[C_ROW], new, tail)
  append(id, events, item[C_TOS], parent)
  return answer
end

-- Makes many changes of different rows. Returns an outcome for each, and whether any needs a decision.
local function change_all(items)
  local ids, watch, n = {}, {}, #items
  for i = 1, n do
    ids[i] = items[i][C_ID]
    watch[i] = P .. 'watch:' .. ids[i]
  end
  load(ids)
  local watched = false
  for first = 1, n, MANY do
    watched = call('EXISTS', unpack(watch, first, math.min(first + MANY - 1, n))) > 0 or watched
  end
  local answers, asks = {}, false
  for i = 1, n do
    answers[i] = change(items[i], watched)
    asks = asks or answers[i] == ASK
  end
  return table.concat(answers), asks
end

-- Removes a row with everything that belongs to it: events, refusals, its waits. `stone` is its tombstone, or false. The
-- caller moves on the jobs that wait for it.
local function drop(id, stone)
  local old = row_of(id)
  if touched[id] then new_page() end
  if old then index(id, old, nil) end
  touched[id] = true
  concerns(id)
  local ok, at, named = pcall(unpack_one, call('GET', P .. 'f:' .. id) or '', 1)
  if ok and at > 0 and type(named) == 'table' then
    if named[1] then gather(zrems, 'group:' .. named[1], id) end
    if named[2] then gather(zrems, 'key:' .. named[2], id) end
    for _, tag in ipairs(named[3] or {}) do gather(zrems, 'tag:' .. tag, id) end
  end
  if old and old[PARENT] then gather(zrems, 'units:' .. old[PARENT], id) end
  for _, on in ipairs(call('SMEMBERS', P .. 'left:' .. id)) do
    gather(zrems, 'watch:' .. on, id)
    concerns(on)
  end
  gather(zrems, 'all', id)
  gather(zrems, 'long', id)
  gather(zrems, 'aside', id)
  for _, kind in ipairs({'r:', 'f:', 'x:', 'e:', 'refusals:', 'on:', 'left:', 'units:', 'open:'}) do
    gone[#gone + 1] = P .. kind .. id
  end
  if stone then
    history[id] = {stone}
    gather(zadds, 'gone', 0, id)
  end
  values[id], rows[id], besides[id] = false, false, false
end
