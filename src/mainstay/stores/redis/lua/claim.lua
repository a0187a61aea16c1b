-- Claims ready rows for a session, lowest rank first over all its queues.
--
-- Arguments: queues, session, number of rows, nonce, changes that promote due rows, ids of unusable rows, whether to claim
-- ready rows without another check for due ones, mark or false, the number of marks to keep, whether this call has claimed
-- under its mark before. Returns 'lost' (the session is dead or unknown), 'due' (rows that must be promoted first: their
-- events are sealed elsewhere), 'taken', or 'held' (the rows of an earlier claim under this mark); then the outcomes of the
-- changes, a digit each; and id, row, fixed part and the part beside it, for each row.

local QUEUES, WHO, MOST, NONCE, PROMOTED, UNUSABLE, AT_ONCE = ARGS[1], ARGS[2], ARGS[3], ARGS[4], ARGS[5], ARGS[6], ARGS[7]
local MARK, MARKS_KEPT, MORE = ARGS[8], ARGS[9], ARGS[10]
local DUE_AT_ONCE = 500
local MOST_PASSED = 1000 -- rows that one claim may skip
local PAGE = 10

TURN = nil -- a row is claimed once, so claims do not spoil a decision again and again

local function answer(what, ids, outcomes)
  local keys, made = {}, {NOW, what, outcomes}
  for i, id in ipairs(ids) do
    keys[2 * i - 1], keys[2 * i] = P .. 'f:' .. id, P .. 'x:' .. id
  end
  local found = read_all(keys)
  for i, id in ipairs(ids) do
    local n = 4 * i
    made[n], made[n + 1], made[n + 2], made[n + 3] = id, values[id], found[2 * i - 1], found[2 * i]
  end
  return made
end

-- The rows of an earlier claim, ids and tokens in turn, that the session still holds.
local function still_held(taken)
  local ids, held = {}, {}
  for i = 1, #taken, 2 do ids[#ids + 1] = taken[i] end
  load(ids)
  for i, id in ipairs(ids) do
    local row = rows[id]
    if row and row[SESSION] == WHO and row[TOKEN] == taken[2 * i] then held[#held + 1] = id end
  end
  return held
end

local session = call('HMGET', P .. 's:' .. WHO, 'dead', 'nonce', 'claimed', 'draining_by')
if session[1] ~= '0' then return {NOW, 'lost'} end
local function repeated(what, taken)
  local outcomes = {}
  for i, item in ipairs(PROMOTED) do outcomes[i] = is_written(item) and APPLIED or ASK end
  return answer(what, still_held(taken), table.concat(outcomes))
end
-- it was made before, and its reply lost
if session[2] == NONCE then return repeated('taken', cmsgpack.unpack(session[3])) end

local marks, marked = {}, {} -- of the last claims with a mark; the rows of this mark
if MARK then
  local found = call('HGET', P .. 's:' .. WHO, 'marks')
  local known = found and cmsgpack.unpack(found) or {}
  for i = 1, #known, 2 do
    if known[i] ~= MARK then
      marks[#marks + 1] = known[i]
      marks[#marks + 1] = known[i + 1]
    else
      if not MORE then return repeated('held', known[i + 1]) end
      marked = known[i + 1]
    end
  end
  while #marks > 2 * (MARKS_KEPT - 1) do
    table.remove(marks, 1)
    table.remove(marks, 1)
  end
end

for _, id in ipairs(UNUSABLE) do
  row_of(id)
  set_aside(id)
end
local outcomes = #PROMOTED > 0 and change_all(PROMOTED) or ''
if session[4] then -- it was asked to drain
  finish()
  return answer('taken', {}, outcomes)
end
flush()

local open, seen = {}, {}
for _, queue in ipairs(QUEUES) do
  if not seen[queue] and call('SISMEMBER', P .. 'paused', queue) == 0 then open[#open + 1] = queue end
  seen[queue] = true
end

-- Due rows come first. A unit waits in its claimable state, so it only changes lanes.
local due, looked_at = {}, 0
for _, queue in ipairs(AT_ONCE and {} or open) do
  local ids = call('ZRANGE', P .. 'due:' .. queue, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, DUE_AT_ONCE - looked_at)
  looked_at = looked_at + #ids
  if #ids > 0 then
    load(ids)
    for _, id in ipairs(ids) do
      local row = rows[id]
      if not row then
        gather(zrems, 'due:' .. queue, id)
        set_aside(id)
      elseif row[PARENT] then
        set(id, {[LANE] = READY})
      else
        due[#due + 1] = id
      end
    end
  end
end
if #due > 0 then
  finish()
  return answer('due', due, outcomes)
end
flush()

-- Routed rows that this session can run become ready, up to the requested number.
routing.there = call('SMEMBERS', P .. 'routes')
if #routing.there > 0 then
  local is_open, offered = {}, false
  for _, queue in ipairs(open) do is_open[queue] = true end
  local tasks = call('HGET', P .. 's:' .. WHO, 'tasks')
  if tasks then
    offered = {}
    for _, task in ipairs(cmsgpack.unpack(tasks)) do offered[task] = true end
  end
  for _, place_of in ipairs(routing.there) do
    local queue, task = string.match(place_of, '^(.-)%z(.*)$')
    if is_open[queue] and (not offered or offered[task]) then
      local ids = call('ZRANGE', P .. 'routed:' .. place_of, 0, MOST - 1)
      load(ids)
      for _, id in ipairs(ids) do
        if rows[id] and rows[id][LANE] == routing.LANE then
          set(id, {[LANE] = READY})
        else
          gather(zrems, 'routed:' .. place_of, id)
          later('HDEL', 'route', id)
        end
      end
      if #ids < MOST then later('SREM', 'routes', place_of) end
    end
  end
  flush()
end

local heads, page = {}, math.max(#open == 1 and 1 or PAGE, math.ceil(MOST / math.max(1, #open)))

-- The next ready row of a queue. Claimed rows leave the index only at the end, so positions stay valid.
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

-- The heads are a heap, the best row first: there may be thousands of queues.
local function goes_before(a, b)
  local x, y = a.ranks[a.at], b.ranks[b.at]
  return x < y or (x == y and a.ids[a.at] < b.ids[b.at])
end

-- Moves the first head down to its place in the heap.
local function sink()
  local at, n, moved = 1, #heads, heads[1]
  while true do
    local below = 2 * at
    if below > n then break end
    if below < n and goes_before(heads[below + 1], heads[below]) then below = below + 1 end
    if not goes_before(heads[below], moved) then break end
    heads[at], at = heads[below], below
  end
  heads[at] = moved
end

-- Continues after the best row.
local function pass()
  if not advance(heads[1]) then
    heads[1] = heads[#heads]
    heads[#heads] = nil
  end
  if #heads > 1 then sink() end
end

for _, queue in ipairs(open) do
  local head = {queue = queue, ids = {}, ranks = {}, at = 0, offset = 0, over = false}
  if advance(head) then heads[#heads + 1] = head end
end
table.sort(heads, goes_before)

local free, passed = {}, 0

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

local taken, claimed, per_queue = {}, {}, {}

local function take(id, row)
  local new = copy(row)
  new[STATUS], new[REASON], new[LANE], new[OPEN] = 'running', false, 0, true
  new[VERSION], new[TOKEN], new[SESSION] = row[VERSION] + 1, row[TOKEN] + 1, WHO
  new[CHANGED], new[CLAIMED], new[STARTED], new[EXPIRES] = NOW, NOW, false, false
  replace(id, new)
  if not row[PARENT] then flow['running'] = (flow['running'] or 0) + 1 end
  taken[#taken + 1] = id
  claimed[#claimed + 1] = id
  claimed[#claimed + 1] = new[TOKEN]
  per_queue[row[QUEUE]] = (per_queue[row[QUEUE]] or 0) + 1
end

-- Whether one more row may be moved out of the way of claims. If not, this write is long enough, and a woken worker
-- continues from here.
local function may_pass()
  passed = passed + 1
  if passed <= MOST_PASSED then return true end
  for _, queue in ipairs(open) do wake('queue:' .. queue, 1) end
  return false
end

while #taken < MOST and #heads > 0 do
  local head = heads[1]
  local id = head.ids[head.at]
  local row = rows[id]
  if not row then
    gather(zrems, 'ready:' .. head.queue, id)
    set_aside(id)
  elseif row[EXPIRES] and row[EXPIRES] <= NOW then
    -- it missed its deadline: a sweep ends it
    if not may_pass() then break end
    set(id, {[LATE] = true})
  elseif row[STATUS] ~= CLAIMABLE or row[SETTLED] then
    -- a status of a newer version is left to the newer workers
    if KNOWN[row[STATUS]] then set_aside(id) end
  elseif not has_slot(row) then
    if not may_pass() then break end
    set(id, {[LANE] = BLOCKED})
  else
    take(id, row)
  end
  if #taken < MOST then pass() end
end

-- rows that became ready in this step and are claimed by it need no other worker
for queue, n in pairs(per_queue) do
  local topic = 'queue:' .. queue
  if wakes[topic] then wakes[topic] = wakes[topic] - n end
end
gather(hsets, 's:' .. WHO, 'nonce', NONCE)
gather(hsets, 's:' .. WHO, 'claimed', pack(claimed))
if MARK then
  for i = 1, #claimed do marked[#marked + 1] = claimed[i] end
  marks[#marks + 1] = MARK
  marks[#marks + 1] = marked
  gather(hsets, 's:' .. WHO, 'marks', pack(marks))
end
finish()
return answer('taken', taken, outcomes)
