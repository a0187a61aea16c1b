-- Takes ready rows for a session, lowest rank first over all its queues.
--
-- Arguments: queues, session, how many, nonce, changes that promote due rows, ids that cannot be used, ids that are to
-- be left where they are. Answers 'lost' (the session is dead or unknown), 'due' (rows that must be promoted first:
-- their events are sealed elsewhere) or 'taken'; behind it id, row, fixed part and what is beside it, for each row.

local QUEUES, WHO, MOST, NONCE = ARGS[1], ARGS[2], ARGS[3], ARGS[4]
local DUE_AT_ONCE = 500
local MOST_BLOCKED = 1000
local PAGE = 10

local function answer(what, ids)
  local keys, made = {}, {NOW, what}
  for i, id in ipairs(ids) do
    keys[2 * i - 1], keys[2 * i] = P .. 'f:' .. id, P .. 'x:' .. id
  end
  for first = 1, #keys, MANY do
    local last = math.min(first + MANY - 1, #keys)
    local found = call('MGET', unpack(keys, first, last))
    for i = first, last, 2 do
      local id, n = ids[(i + 1) / 2], 2 * i
      made[n + 1], made[n + 2] = id, values[id]
      made[n + 3], made[n + 4] = found[i - first + 1], found[i - first + 2]
    end
  end
  return made
end

local session = call('HMGET', P .. 's:' .. WHO, 'dead', 'nonce', 'claimed')
if session[1] ~= '0' then return {NOW, 'lost'} end
if session[2] == NONCE then
  -- it was carried out before, and its answer lost
  local held = {}
  local taken = cmsgpack.unpack(session[3])
  load(taken)
  for _, id in ipairs(taken) do
    if rows[id] and rows[id][SESSION] == WHO and rows[id][OPEN] then held[#held + 1] = id end
  end
  return answer('taken', held)
end

for _, id in ipairs(ARGS[6]) do
  row_of(id)
  set_aside(id)
end
local left = {}
for _, id in ipairs(ARGS[7]) do left[id] = true end
-- rows that get ready in this very step and are taken by it need nobody else
if #ARGS[5] > 0 then change_all(ARGS[5]) end
flush()

local open, seen = {}, {}
local paused = #QUEUES > 0 and call('SMISMEMBER', P .. 'paused', unpack(QUEUES)) or {}
for i, queue in ipairs(QUEUES) do
  if paused[i] == 0 and not seen[queue] then
    seen[queue] = true
    open[#open + 1] = queue
  end
end

-- Due rows come first. A unit waits in its claimable state, so it only changes lanes.
local due = {}
for _, queue in ipairs(open) do
  local ids = call('ZRANGE', P .. 'due:' .. queue, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, DUE_AT_ONCE)
  if #ids > 0 then
    load(ids)
    for _, id in ipairs(ids) do
      local row = rows[id]
      if not row then
        gather(zrems, 'due:' .. queue, id)
        set_aside(id)
      elseif row[PARENT] then
        set(id, {[LANE] = READY})
      elseif not left[id] then
        due[#due + 1] = id
      end
    end
  end
end
if #due > 0 then
  finish()
  return answer('due', due)
end
flush()

local heads, page = {}, #open == 1 and MOST or math.max(PAGE, math.ceil(MOST / math.max(1, #open)))

-- The next ready row of a queue. What is taken leaves the index only at the end, so places stay what they are.
local function advance(head)
  if head.at >= #head.ids then
    if head.over then return false end
    local found = call('ZRANGE', P .. 'ready:' .. head.queue, head.offset, head.offset + page - 1, 'WITHSCORES')
    local ids, ranks = {}, {}
    for i = 1, #found, 2 do ids[#ids + 1], ranks[#ranks + 1] = found[i], tonumber(found[i + 1]) end
    head.ids, head.ranks, head.at, head.offset = ids, ranks, 0, head.offset + page
    head.over = #ids < page
    if #ids == 0 then return false end
    load(ids)
  end
  head.at = head.at + 1
  return true
end

for _, queue in ipairs(open) do
  local head = {queue = queue, ids = {}, ranks = {}, at = 0, offset = 0, over = false}
  if advance(head) then heads[#heads + 1] = head end
end

local function best()
  if #heads == 1 then return heads[1].at > 0 and heads[1] end
  local found
  for _, head in ipairs(heads) do
    if head.at > 0 then
      if not found then
        found = head
      else
        local a, b = head.ranks[head.at], found.ranks[found.at]
        if a < b or (a == b and head.ids[head.at] < found.ids[found.at]) then found = head end
      end
    end
  end
  return found
end

local free, blocked = {}, 0

-- Whether the key of a row has a slot for it.
local function has_slot(row)
  local key = row[LIMITED]
  if not key then return true end
  if free[key] == nil then
    local most = call('HGET', P .. 'limits', key)
    free[key] = most and tonumber(most) - call('SCARD', P .. 'slots:' .. key) or false
  end
  if not free[key] then return true end
  if free[key] <= 0 then return false end
  free[key] = free[key] - 1
  return true
end

local taken, per_queue = {}, {}

local function take(id, row)
  local new = copy(row)
  new[STATUS], new[REASON], new[LANE], new[OPEN] = 'running', false, 0, true
  new[VERSION], new[TOKEN], new[SESSION] = row[VERSION] + 1, row[TOKEN] + 1, WHO
  new[CHANGED], new[CLAIMED], new[STARTED], new[EXPIRES] = NOW, NOW, false, false
  replace(id, new)
  if not row[PARENT] then flow['running'] = (flow['running'] or 0) + 1 end
  taken[#taken + 1] = id
  per_queue[row[QUEUE]] = (per_queue[row[QUEUE]] or 0) + 1
end

while #taken < MOST do
  local head = best()
  if not head then break end
  local id = head.ids[head.at]
  local row = rows[id]
  if not row then
    gather(zrems, 'ready:' .. head.queue, id)
    set_aside(id)
  elseif row[EXPIRES] and row[EXPIRES] <= NOW then -- luacheck: ignore
    -- it missed its deadline: a sweep ends it
  elseif row[STATUS] ~= CLAIMABLE or row[SETTLED] then
    -- a status of a newer version is left alone: the newer workers beside us know what to do with it
    if KNOWN[row[STATUS]] then set_aside(id) end
  elseif not has_slot(row) then
    if blocked == MOST_BLOCKED then
      -- this write has been long enough; whoever is woken goes on from here
      for _, queue in ipairs(open) do wake('queue:' .. queue, 1) end
      break
    end
    blocked = blocked + 1
    set(id, {[LANE] = BLOCKED})
  else
    take(id, row)
  end
  if #taken < MOST and not advance(head) then head.at = 0 end
end

for queue, n in pairs(per_queue) do
  local topic = 'queue:' .. queue
  if wakes[topic] then wakes[topic] = wakes[topic] - n end
end
call('HSET', P .. 's:' .. WHO, 'nonce', NONCE, 'claimed', pack(taken))
finish()
return answer('taken', taken)
