-- The check of the indexes against the rows. Arguments: the operation, whether to repair, and the operation's arguments.
-- Each call checks a few rows or entries atomically, so that it is correct beside running workers.

local does = {}
local found = {}

local function say(...)
  found[#found + 1] = {...}
end

local function names_of(id)
  local ok, at, named = pcall(unpack_one, call('GET', P .. 'f:' .. id) or '', 1)
  if not ok or type(named) ~= 'table' or type(at) ~= 'number' then return {} end
  return named
end

-- Every index that must list a row: name -> score, or true in a set.
local function places(id, row)
  local at = {all = 0}
  local lane, score = place(row)
  if lane then at[lane] = score end
  if row[LANE] == routing.LANE then
    local place_of = call('HGET', P .. 'route', id)
    if place_of then at['routed:' .. place_of] = row[RANK] end
  end
  if not row[PARENT] then at['status:' .. row[STATUS]] = 0 end
  if row[SESSION] then
    at['held:' .. row[SESSION]] = true
    if STOPPING[row[STATUS]] then at['stopping:' .. row[SESSION]] = true end
    if row[STATUS] == PLACED.ASSIGNED then at['assigned:' .. row[SESSION]] = true end
    if row[LIMITED] then at['slots:' .. row[LIMITED]] = true end
  end
  if timed(row) then at[timed(row)] = row[EXPIRES] end
  if boosted(row) then at['boosted:' .. row[QUEUE]], at['since:' .. row[QUEUE]] = row[RANK], row[DUE] end
  if row[PARENT] then
    at['units:' .. row[PARENT]], at[units_in(row[PARENT], row[STATUS])] = 0, 0
    if not row[SETTLED] then at['open:' .. row[PARENT]] = true end
  end
  local named = names_of(id)
  if named[1] then at['group:' .. named[1]] = 0 end
  if named[2] then at['key:' .. named[2]] = 0 end
  if type(named[3]) == 'table' then
    for _, tag in ipairs(named[3]) do at['tag:' .. tag] = 0 end
  end
  local n = call('LLEN', P .. 'e:' .. id)
  if n > LONG then at.long = n end
  return at
end

local function is_listed(name, id, score)
  if score == true then return call('SISMEMBER', P .. name, id) == 1 end
  return tonumber(call('ZSCORE', P .. name, id)) == score
end

local function enlist(name, id, score)
  if score == true then
    call('SADD', P .. name, id)
  else
    call('ZADD', P .. name, score, id)
  end
end

-- Checks what a row has beside its entries: its session among the holders, its unique key, its blocked key.
local function check_company(id, row, repair)
  if row[SESSION] and call('SISMEMBER', P .. 'holders', row[SESSION]) == 0 then
    say('missing', id, 'holders')
    if repair then call('SADD', P .. 'holders', row[SESSION]) end
  end
  if row[LANE] == BLOCKED and row[LIMITED] then
    local listed = call('SISMEMBER', P .. 'blockedkeys', row[LIMITED]) == 1
    if not listed or call('SISMEMBER', P .. 'blockedq:' .. row[LIMITED], row[QUEUE]) == 0 then
      say('missing', id, 'blockedkeys')
      if repair then
        call('SADD', P .. 'blockedkeys', row[LIMITED])
        call('SADD', P .. 'blockedq:' .. row[LIMITED], row[QUEUE])
      end
    end
  end
  if not row[UNIQUE] or row[SETTLED] then return end
  local holder = call('HGET', P .. 'unique', row[UNIQUE])
  if holder == id then return end
  local other = holder and row_of(holder)
  if other and other[UNIQUE] == row[UNIQUE] and not other[SETTLED] then
    say('twice', id, row[UNIQUE], holder)
    return
  end
  say('missing', id, 'unique')
  if repair then call('HSET', P .. 'unique', row[UNIQUE], id) end
end

local function clear(id)
  call('ZREM', P .. 'all', id)
  call('DEL', P .. 'x:' .. id, P .. 'f:' .. id, P .. 'refusals:' .. id, P .. 'on:' .. id, P .. 'left:' .. id)
end

-- A job without a row: its events stay, closed with a tombstone (which the caller seals, and sends back); its other keys
-- are removed.
local function check_gone(id, repair)
  local events = call('LLEN', P .. 'e:' .. id)
  if call('ZSCORE', P .. 'gone', id) then
    if call('ZSCORE', P .. 'all', id) then
      say('rowless', id)
      if repair then clear(id) end
    end
  elseif events > 0 then
    say('stray', id, events, call('LINDEX', P .. 'e:' .. id, -1))
  elseif call('ZSCORE', P .. 'all', id) or call('EXISTS', P .. 'f:' .. id, P .. 'x:' .. id) > 0 then
    say('rowless', id)
    if repair then clear(id) end
  end
end

-- Rows by id: does every index list them?
function does.rows(repair, ids)
  load(ids)
  for _, id in ipairs(ids) do
    local row = rows[id]
    if not there(id) then
      check_gone(id, repair)
    elseif row then
      for name, score in pairs(places(id, row)) do
        if not is_listed(name, id, score) then
          say('missing', id, name)
          if repair then enlist(name, id, score) end
        end
      end
      check_company(id, row, repair)
    end
  end
  return {NOW, found}
end

-- Counts jobs by queue and status after an id. Returns the counts, the number of unreadable rows, the tallies at this
-- moment, and the id to continue from, '' at the end.
function does.count(_, after, size)
  local ids = call('ZRANGE', P .. 'all', after == '' and '-' or '(' .. after, '+', 'BYLEX', 'LIMIT', 0, size)
  local counted, unreadable, counts = {}, 0, {}
  load(ids)
  for _, id in ipairs(ids) do
    local row = rows[id]
    if not row then
      unreadable = unreadable + (there(id) and 1 or 0)
    elseif not row[PARENT] then
      local field = row[QUEUE] .. '\0' .. row[STATUS]
      counted[field] = (counted[field] or 0) + 1
    end
  end
  for field, n in pairs(counted) do counts[#counts + 1] = {field, n} end
  return {NOW, counts, unreadable, call('HGETALL', P .. 'tallies'), #ids == size and ids[size] or ''}
end

-- Entries of an index: is there a row that belongs there? Entries of an unreadable row are left: it is repaired first.
local function check_entries(repair, name, ids, is_set)
  load(ids)
  for _, id in ipairs(ids) do
    local row = rows[id]
    local belongs = name == 'gone' or (there(id) and not row)
    if row then belongs = places(id, row)[name] ~= nil end
    if not belongs then
      local removed
      if is_set then
        removed = call('SISMEMBER', P .. name, id) == 1
        if removed and repair then call('SREM', P .. name, id) end
      else
        removed = call('ZSCORE', P .. name, id)
        if removed and repair and name ~= 'all' then call('ZREM', P .. name, id) end
      end
      -- jobs without a row are found by the list of all
      if removed and name ~= 'all' then say('extra', id, name, there(id) and 1 or 0) end
    end
  end
end

function does.entries(repair, name, ids, is_set)
  check_entries(repair, name, ids, is_set)
  return {NOW, found}
end

-- Several complete indexes, [name, is a set] each: many have one entry (each idempotency key has an index). Returns the
-- positions of those with more than `most` entries, which are skipped, and the number of indexes that were checked.
function does.lists(repair, lists, most)
  local big, looked, done = {}, 0, 0
  for at, list in ipairs(lists) do
    local name, is_set = list[1], list[2]
    local size = call(is_set and 'SCARD' or 'ZCARD', P .. name)
    if size > most then
      big[#big + 1] = at
    elseif looked > 0 and looked + size > most then
      break
    else
      check_entries(repair, name, is_set and call('SMEMBERS', P .. name) or call('ZRANGE', P .. name, 0, -1), is_set)
      looked = looked + size
    end
    done = at
  end
  return {NOW, found, big, done}
end

-- Leads whose time ends too far in the future: no session can have got it.
function does.leads(repair, longest_ms)
  for _, name in ipairs(call('SMEMBERS', P .. 'leads')) do
    local lead = call('HMGET', P .. 'lead:' .. name, 'holder', 'until_ms')
    if lead[2] and (tonumber(lead[2]) or math.huge) > LEASE + longest_ms then
      say('lead', name, lead[1] or '', lead[2])
      if repair then call('HSET', P .. 'lead:' .. name, 'until_ms', 0) end
    end
  end
  return {NOW, found}
end

-- Refusals by job: does the job exist?
function does.refusals(repair, ids)
  for _, id in ipairs(ids) do
    if call('EXISTS', P .. 'refusals:' .. id) == 1 and not there(id) and not call('ZSCORE', P .. 'all', id) then
      say('refusal', id)
      if repair then call('DEL', P .. 'refusals:' .. id) end
    end
  end
  return {NOW, found}
end

-- Unique keys, [key, id] each: does that job hold it?
function does.unique(repair, held)
  for _, entry in ipairs(held) do
    local row = row_of(entry[2])
    if call('HGET', P .. 'unique', entry[1]) == entry[2] and not (there(entry[2]) and not row)
      and not (row and row[UNIQUE] == entry[1] and not row[SETTLED]) then
      say('extra', entry[2], 'unique', row and 1 or 0)
      if repair then call('HDEL', P .. 'unique', entry[1]) end
    end
  end
  return {NOW, found}
end

-- Idempotency keys by field: are they listed by the time until which they are kept?
function does.keys(repair, fields)
  for _, field in ipairs(fields) do
    local value, listed = call('HGET', P .. 'keys', field), call('ZSCORE', P .. 'keysuntil', field)
    local until_ms = value and tonumber(string.match(value, '^(%d+):') or nil)
    if value and not until_ms then
      say('key', field, 'cannot be read')
      if repair then
        call('HDEL', P .. 'keys', field)
        call('ZREM', P .. 'keysuntil', field)
      end
    elseif value and tonumber(listed) ~= until_ms then
      say('key', field, 'would be kept forever')
      if repair then call('ZADD', P .. 'keysuntil', until_ms, field) end
    elseif listed and not value then
      say('key', field, 'is listed, and does not exist')
      if repair then call('ZREM', P .. 'keysuntil', field) end
    end
  end
  return {NOW, found}
end

-- Keys with blocked rows that nothing would make ready: they have a free slot and no ready row in that queue.
function does.stranded(repair, most_ready)
  for _, key in ipairs(call('SMEMBERS', P .. 'blockedkeys')) do
    local most = call('HGET', P .. 'limits', key)
    local free = not most or tonumber(most) > call('SCARD', P .. 'slots:' .. key)
    for _, queue in ipairs(free and call('SMEMBERS', P .. 'blockedq:' .. key) or {}) do
      local blocked = call('ZCARD', P .. blocked_key(key, queue))
      local ready = call('ZRANGE', P .. 'ready:' .. queue, 0, most_ready - 1)
      local some = #ready == most_ready
      load(ready)
      for _, id in ipairs(ready) do
        if rows[id] and rows[id][LIMITED] == key then some = true end
      end
      if blocked > 0 and not some then
        say('stranded', key, queue, blocked)
        if repair then freed[key] = true end
      end
    end
  end
  finish()
  return {NOW, found}
end

-- Corrects tallies by their differences.
function does.tally(_, offs)
  for _, off in ipairs(offs) do
    if call('HINCRBY', P .. 'tallies', off[1], off[2]) == 0 then call('HDEL', P .. 'tallies', off[1]) end
  end
  return {NOW}
end

-- Closes the events of a missing job with a tombstone; 0 if they have changed.
function does.bury(_, id, last, stone)
  if there(id) or call('LINDEX', P .. 'e:' .. id, -1) ~= last then return {NOW, 0} end
  call('RPUSH', P .. 'e:' .. id, stone)
  call('ZADD', P .. 'gone', 0, id)
  clear(id)
  return {NOW, 1}
end

-- A quick look at open: counts from the indexes alone.
function does.glance()
  local strange = 0
  for _, holder in ipairs(call('SMEMBERS', P .. 'holders')) do
    if call('SISMEMBER', P .. 'sessions', holder) == 0 then strange = strange + call('SCARD', P .. 'held:' .. holder) end
  end
  return {NOW, call('HGETALL', P .. 'tallies'), call('ZCARD', P .. 'aside'), strange}
end

return does[ARGS[1]](ARGS[2], unpack(ARGS, 3))
