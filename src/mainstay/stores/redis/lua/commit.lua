-- Commits a decision, if all data it was made on is unchanged; otherwise returns 'again'.
--
-- Arguments: the leadership or false; rows that were read, as [id, row, beside it]; other reads, as
-- [[command, key, ...], reply]; new jobs; the jobs that settle in this step, as [id, status]; the acts, in order; units
-- among the new jobs for which existing units were assumed to stand; the name of the decision, if it has the turn.

local LEAD, SEEN, ASKED, NEW, SETTLING, ACTS, STANDING, WHO = ARGS[1], ARGS[2], ARGS[3], ARGS[4], ARGS[5], ARGS[6], ARGS[7],
  ARGS[8]

if TURN == WHO then TURN = nil end

local function same(a, b)
  if type(a) == 'table' and type(b) == 'table' then
    if #a ~= #b then return false end
    for i = 1, #a do
      if not same(a[i], b[i]) then return false end
    end
    return true
  end
  return (a or false) == (b or false)
end

local function holds()
  local ids, keys = {}, {}
  for i, seen in ipairs(SEEN) do ids[i], keys[i] = seen[1], P .. 'x:' .. seen[1] end
  load(ids)
  local beside = read_all(keys)
  for i, seen in ipairs(SEEN) do
    if values[seen[1]] ~= seen[2] or (beside[i] or false) ~= seen[3] then return false end
  end
  for _, asked in ipairs(ASKED) do
    local command = asked[1]
    local found = call(command[1], P .. command[2], unpack(command, 3))
    if not same(found, asked[2]) then return false end
  end
  return true
end

-- Each collects its writes.
local acts = {
  -- id, row, events, states moved to, the claim's event or false
  put = function(id, value, events, tos, claim)
    local old = row_of(id)
    local new, tail = opened(value)
    if old and old[OPEN] and claim then table.insert(events, 1, claim) end
    put(id, value, new, tail)
    append(id, events, tos, new[PARENT])
  end,
  -- id, its tombstone or false
  drop = drop,
  -- the job that settled or was removed, the jobs that waited for it
  done = function(on, waiters)
    for _, waiter in ipairs(waiters) do let_go(waiter, on) end
  end,
  free = function(key) freed[key] = true end,
  call = later,
}

-- Whether this very commit was made before, and its reply lost: all its rows are as it would write them.
local function is_done()
  if not AGAIN then return false end
  local last, some = {}, false
  for _, act in ipairs(ACTS) do
    if act[1] == 'put' then last[act[2]], some = act[3], true end
    if act[1] == 'drop' then return false end
  end
  for id, value in pairs(last) do
    row_of(id)
    if values[id] ~= value then return false end
  end
  return some
end

-- Whether the assumption about standing units is right: the other new units count as open units of their parents.
local function as_counted()
  local standing, found, fits = {}, {}, true
  for _, id in ipairs(STANDING) do standing[id] = true end
  for i, job in ipairs(NEW) do
    local id = job[N_ID]
    if opened(job[N_ROW])[PARENT] then
      if not fresh.at[i] then found[#found + 1] = id end
      if fresh.at[i] == (standing[id] or false) then fits = false end
    end
  end
  return fits, found
end

-- The unique keys of the settled jobs that are opened again: a new job must not share one.
local function taken_again()
  local keys = {}
  for _, act in ipairs(#NEW > 0 and ACTS or {}) do
    if act[1] == 'put' then
      local old, new = row_of(act[2]), opened(act[3])
      if old and old[SETTLED] and not new[SETTLED] and new[UNIQUE] then keys[new[UNIQUE]] = act[2] end
    end
  end
  return keys
end

local done = is_done()
do
  local now = not done and deposed(LEAD)
  if now then return {NOW, 'deposed', now[1], now[2]} end
end
if not done and not holds() then return {NOW, 'again'} end
local settling = {}
for _, over in ipairs(SETTLING) do settling[over[1]] = over[2] end
local answers, refused = plan(NEW, settling, taken_again())
if done then
  if answers and #fresh == 0 then return {NOW, 'done', pack(answers)} end
  return {NOW, 'again'}
end
if not answers then return {NOW, 'refused', pack(refused)} end
local fits, standing = as_counted()
if not fits then return {NOW, 'refused', pack({'stands', standing})} end
for _, act in ipairs(ACTS) do acts[act[1]](unpack(act, 2)) end
enter()
finish()
return {NOW, 'done', pack(answers)}
