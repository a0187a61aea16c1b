-- Carries out what was decided elsewhere, if all it was decided on still holds; otherwise answers 'again'.
--
-- Arguments: the leadership or false; rows that were read, as [id, row, beside it]; other things that were asked, as
-- [[command, key, ...], answer]; new jobs; what settles in this very step, as [id, status]; what to do, in order.

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
  local ids = {}
  for i, seen in ipairs(ARGS[2]) do ids[i] = seen[1] end
  load(ids)
  for _, seen in ipairs(ARGS[2]) do
    if values[seen[1]] ~= seen[2] or not same(call('GET', P .. 'x:' .. seen[1]), seen[3]) then return false end
  end
  for _, asked in ipairs(ARGS[3]) do
    local command = asked[1]
    local found = call(command[1], P .. command[2], unpack(command, 3))
    if not same(found, asked[2]) then return false end
  end
  return true
end

local acts = {
  -- id, row, events, states moved to, the claim's event or false
  put = function(id, value, events, tos, claim)
    local old = row_of(id)
    local new, tail = opened(value)
    if old and old[OPEN] and claim then table.insert(events, 1, claim) end
    append(id, events, tos, new[PARENT])
    put(id, value, new, tail)
  end,
  -- id, its tombstone or false
  drop = function(id, stone)
    row_of(id)
    drop(id, stone)
  end,
  -- the job that settled or went, those that waited for it
  done = function(on, waiters)
    for _, waiter in ipairs(waiters) do call('SREM', P .. 'left:' .. waiter, on) end
    call('ZREM', P .. 'watch:' .. on, unpack(waiters))
  end,
  -- id, what is kept beside its row ('' for nothing)
  beside = function(id, value)
    if value == '' then
      call('DEL', P .. 'x:' .. id)
    else
      call('SET', P .. 'x:' .. id, value)
    end
  end,
  free = function(key) freed[key] = true end,
  wake = function(topic, n) wake(topic, n) end,
  count = function(queue, status, n) count(queue, status, n) end,
  call = function(command, key, ...) call(command, P .. key, ...) end,
}

if deposed(ARGS[1]) then return {NOW, 'deposed'} end
if not holds() then return {NOW, 'again'} end
local settling = {}
for _, over in ipairs(ARGS[5]) do settling[over[1]] = over[2] end
local answers, refused = plan(ARGS[4], settling)
if not answers then return {NOW, 'refused', pack(refused)} end
for _, act in ipairs(ARGS[6]) do acts[act[1]](unpack(act, 2)) end
enter()
finish()
return {NOW, 'done', pack(answers)}
