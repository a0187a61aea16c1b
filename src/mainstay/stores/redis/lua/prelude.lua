-- What every script of the Redis store begins with: the key layout, the clock, and the one way a row is written.
--
-- Key layout. All keys start with the namespace in braces, so they share one slot of a cluster: {mainstay}:r:<id>
--
--   r:<id>            string   the row: [[what scripts read and write], [head, error, result]]; see redis/rows.py
--   f:<id>            string   the fixed part: [[group, key, tags], [the rest]]
--   x:<id>            string   beside the row: [[progress, progress_ms, trimmed_seq], [checkpoint, trimmed_digest]]
--   e:<id>            list     its events, oldest first; a deleted job's tombstone. An open claim's is not written yet
--   all               zset     every row's id (score 0: in order of id)
--   status:<status>   zset     ids of jobs (not units) in a status (score 0)
--   ready:<queue>     zset     claimable rows by rank
--   due:<queue>       zset     rows that wait for a time, by due_ms (those that wait for other jobs: AWAITS)
--   blocked:<n>:<key>:<queue>  zset  rows over the limit of a concurrency key, by rank; n is the key's length
--   blockedq:<key>    set      queues that may have rows blocked by this key
--   blockedkeys       set      keys that may have blocked rows
--   aside             zset     rows that cannot be read (score 0)
--   held:<session>    set      ids a session holds
--   holders           set      sessions that hold something
--   stopping:<session>  set    ids a session holds that are asked to stop
--   slots:<key>       set      ids held under a concurrency key
--   expires           zset     unsettled rows by expires_ms
--   keep              zset     settled rows with their own retention, by expires_ms
--   long              zset     rows with more than LONG written events, by their number
--   unique            hash     unique key -> the unsettled id that holds it
--   keys              hash     scope NUL name -> <until_ms>:<job id>:<content>, the idempotency keys
--   keysuntil         zset     the fields of `keys` by until_ms
--   units:<id>        zset     units of a job (score 0)
--   open:<id>         set      those of them that are not settled
--   tag:<tag>, group:<id>, key:<key>   zset   ids with this tag, group, idempotency key (score 0)
--   on:<id>           list     the ids a job waits or waited for, as given
--   left:<id>         set      those of them that have not settled
--   watch:<id>        zset     the ids that wait for a job (score 0)
--   refusals:<id>     hash     token -> a refused write
--   gone              zset     ids of deleted jobs, whose tombstone stays (score 0)
--   tallies           hash     queue NUL status -> how many jobs
--   flow:<minute>     hash     status -> how many moves into it
--   s:<session>       hash     a session: dead (0 or 1), nonce and claimed (its last claim), and what the registry adds
--   sessions          set      ids of sessions
--   paused            set      queues that are paused
--   limits            hash     concurrency key -> most held at once
--   lead:<name>       hash     holder, epoch, until_ms
--   l:<topic>         set      who waits for queue:<queue>, or watches job:<id>, session:<id>: "<listener> <subscription>".
--                              What is watched expires unless its listener renews it
--   w:<listener>      list     what an open store was woken for, "<subscription> <tick> <queue>"; expires
--   ear:<listener>    string   there while an open store shows signs of life; expires
--   ticks             hash     queue -> counts its wakes. Who comes to sleep says which one it knows of, and is turned
--                              back if there was another: nothing is missed between looking and sleeping
--
-- Arguments: the time to go by ('' for the server's own), the lease time, '1' if this call may have been carried out
-- before, then msgpack. An answer begins with the time.
--
-- Nothing is written before all that can be refused is decided: a script that fails half way is not undone.

local P = KEYS[1]
local call = redis.call
local pack, unpack_one = cmsgpack.pack, cmsgpack.unpack_one
local sub, find = string.sub, string.find

local STATUS, VERSION, TOKEN, SESSION, LANE, RANK, DUE, EXPIRES, SETTLED = 1, 2, 3, 4, 5, 6, 7, 8, 9
local QUEUE, PARENT, LIMITED, UNIQUE, STARTS, LOSSES = 10, 11, 12, 13, 14, 18
local STARTED, CLAIMED, CHANGED, EXTRA, REASON, OPEN, RUN, STALL, GRACE = 19, 20, 21, 22, 23, 25, 26, 27, 28
local WIDTH = 28
local READY, WAITING, BLOCKED, ASIDE = 1, 2, 3, 4
local LONG = 3
local MANY = 4000 -- arguments of one command; Lua's stack holds 8000
local MOST_FREED = 10000

local time = call('TIME')
local REAL = time[1] * 1000 + math.floor(time[2] / 1000)
local NOW = tonumber(ARGV[1]) or REAL
local LEASE = tonumber(ARGV[2]) or REAL
local AGAIN = ARGV[3] == '1'
local ARGS = ARGV[4] and cmsgpack.unpack(ARGV[4])

-- reading ----------------------------------------------------------------------------------------

local values, rows = {}, {} -- id -> the row as stored and as a table; false if it is not there or cannot be read
local tails = {} -- id -> where in the stored row the part begins that no script packs

-- A row that was packed by a caller, as a table; and where its tail begins.
local function opened(value)
  local at, row = unpack_one(value, 1)
  return row, at + 1
end

-- A row that was stored, which may be damaged.
local function parsed(value)
  local ok, at, row = pcall(unpack_one, value, 1)
  if ok and at > 0 and type(row) == 'table' and #row == WIDTH and type(row[STATUS]) == 'string'
    and type(row[QUEUE]) == 'string' and type(row[VERSION]) == 'number' and type(row[LANE]) == 'number'
    and type(row[RANK]) == 'number' and type(row[DUE]) == 'number' and type(row[TOKEN]) == 'number' then
    return row, at + 1
  end
  return false
end

-- Reads rows into `rows`, many in one command.
local function load(ids)
  local keys, want, n = {}, {}, 0
  for i = 1, #ids do
    local id = ids[i]
    if values[id] == nil then
      n = n + 1
      keys[n], want[n] = P .. 'r:' .. id, id
      values[id] = false
    end
  end
  for first = 1, n, MANY do
    local last = math.min(first + MANY - 1, n)
    local found = call('MGET', unpack(keys, first, last))
    for i = first, last do
      local id, value = want[i], found[i - first + 1]
      values[id], rows[id] = value, false
      if value then rows[id], tails[id] = parsed(value) end
    end
  end
end

local function row_of(id)
  if values[id] == nil then load({id}) end
  return rows[id]
end

local function there(id)
  if values[id] == nil then load({id}) end
  return values[id] and true or false
end

local function copy(row)
  return {unpack(row, 1, WIDTH)} -- made at its full size: five times as fast as field by field
end

-- Bytes as msgpack; `pack` would make text of them.
local function bin(bytes)
  local n = #bytes
  if n < 256 then return '\196' .. string.char(n) .. bytes end
  if n < 65536 then return '\197' .. string.char(math.floor(n / 256), n % 256) .. bytes end
  return '\198' .. struct.pack('>I4', n) .. bytes
end

-- Where the value behind this one begins: bytes, or false.
local function behind(packed, at)
  local kind = string.byte(packed, at)
  if kind == 196 then return at + 2 + string.byte(packed, at + 1) end
  if kind == 197 then return at + 3 + struct.unpack('>I2', packed, at + 1) end
  if kind == 198 then return at + 5 + struct.unpack('>I4', packed, at + 1) end
  return at + 1
end

-- What is kept beside a row: [progress, progress_ms, trimmed_seq]; and, as they are stored, checkpoint and digest.
local function beside_of(id)
  local value = call('GET', P .. 'x:' .. id)
  local ok, at, said = pcall(unpack_one, value or '', 1)
  if value and ok and at > 0 and type(said) == 'table' and #said == 3 then
    local digest = behind(value, at + 2)
    return said, sub(value, at + 2, digest - 1), sub(value, digest)
  end
  return {false, false, 0}, pack(false), bin(string.rep('\0', 32))
end

local function set_beside(id, said, checkpoint, digest)
  call('SET', P .. 'x:' .. id, '\146' .. pack(said) .. '\146' .. checkpoint .. digest)
end

-- writing ----------------------------------------------------------------------------------------

-- What is written gathers here and goes out in few commands: one per index and script, not one per row.
local sets, zadds, zrems, sadds, srems = {n = 0}, {}, {}, {}, {}
local touched, holding = {}, {}
local tallies, flow, wakes, soonest, freed, settled = {}, {}, {}, {}, {}, {}

-- Names that begin alike, each put together once.
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

local function send(command, gathered)
  for key, list in pairs(gathered) do
    for first = 1, list.n, MANY do
      call(command, P .. key, unpack(list, first, math.min(first + MANY - 1, list.n)))
    end
  end
end

local function flush()
  for first = 1, sets.n, MANY do
    call('MSET', unpack(sets, first, math.min(first + MANY - 1, sets.n)))
  end
  send('ZREM', zrems)
  send('SREM', srems)
  send('ZADD', zadds)
  send('SADD', sadds)
  for session in pairs(holding) do
    call(call('EXISTS', P .. HELD_BY[session]) == 1 and 'SADD' or 'SREM', P .. 'holders', session)
  end
  sets, zadds, zrems, sadds, srems, touched, holding = {n = 0}, {}, {}, {}, {}, {}, {}
end

local function wake(topic, n)
  wakes[topic] = (wakes[topic] or 0) + n
end

local function blocked_key(key, queue)
  return 'blocked:' .. #key .. ':' .. key .. ':' .. queue
end

-- The index of its lane, and where it stands in it.
local function place(row)
  local lane = row[LANE]
  if lane == READY then return READY_IN[row[QUEUE]], row[RANK] end
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

local function index_lane(id, old, new)
  local was, was_at, is, is_at
  if old then was, was_at = place(old) end
  if new then is, is_at = place(new) end
  if was and was ~= is then gather(zrems, was, id) end
  if is and (was ~= is or was_at ~= is_at) then gather(zadds, is, is_at, id) end
  if not new then return end
  local lane, before = new[LANE], old and old[LANE]
  if lane == BLOCKED and before ~= BLOCKED and new[LIMITED] then
    gather(sadds, 'blockedq:' .. new[LIMITED], new[QUEUE])
    gather(sadds, 'blockedkeys', new[LIMITED])
  elseif lane == READY and before ~= READY then
    wake(TOPIC_OF[new[QUEUE]], 1)
  elseif lane == WAITING and new[DUE] ~= AWAITS and (before ~= WAITING or new[DUE] < old[DUE]) then
    local queue = new[QUEUE]
    if not soonest[queue] or new[DUE] < soonest[queue] then soonest[queue] = new[DUE] end
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
  if stopped and not (stops and was == is) then gather(srems, 'stopping:' .. was, id) end
  if stops and not (stopped and was == is) then
    gather(sadds, 'stopping:' .. is, id)
    wake('session:' .. is, 1)
  end
  local key = (old or new)[LIMITED]
  if not key then return end
  if was and not is then gather(srems, 'slots:' .. key, id) end
  if is and not was then gather(sadds, 'slots:' .. key, id) end
  -- a slot came free, or a ready row left without taking the one it was let through for
  if old and not is and (was or (old[LANE] == READY and not (new and (new[LANE] == READY or new[LANE] == BLOCKED)))) then
    freed[key] = true
  end
end

local function index_end(id, old, new)
  local was, is = old and old[SETTLED], new and new[SETTLED]
  local from = old and old[EXPIRES] and (was and 'keep' or 'expires')
  local to = new and new[EXPIRES] and (is and 'keep' or 'expires')
  if from and from ~= to then gather(zrems, from, id) end
  if to and (from ~= to or old[EXPIRES] ~= new[EXPIRES]) then gather(zadds, to, new[EXPIRES], id) end
  if is and not was then settled[#settled + 1] = id end
  local unique, parent = (old or new)[UNIQUE], (old or new)[PARENT]
  local open_before, open_now = old and not was, new and not is
  if open_before == open_now then return end
  if unique then
    if open_now then
      call('HSETNX', P .. 'unique', unique, id)
    elseif open_before and call('HGET', P .. 'unique', unique) == id then
      call('HDEL', P .. 'unique', unique)
    end
  end
  if parent then
    if open_now then
      gather(sadds, 'open:' .. parent, id)
    elseif open_before then
      gather(srems, 'open:' .. parent, id)
    end
  end
end

-- Keeps every index in step with a row that was `old` (nil: not there) and is `new` (nil: gone).
local function index(id, old, new)
  if touched[id] then flush() end
  touched[id] = true
  index_lane(id, old, new)
  index_holder(id, old, new)
  index_end(id, old, new)
  if (old or new)[PARENT] then return end
  local was, is = old and old[STATUS], new and new[STATUS]
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

-- Writes a row that is there or new: `value` as it is stored, `new` the same as a table, `tail` where the rest begins. A
-- row that cannot be read counts as not there: what stands in the indexes for it, the check finds.
local function put(id, value, new, tail)
  index(id, rows[id] or nil, new)
  keep('r:' .. id, value)
  values[id], rows[id], tails[id] = value, new, tail
end

-- Writes a row that is there as another table; the rest of it stays.
local function replace(id, new)
  local packed = pack(new)
  put(id, '\146' .. packed .. sub(values[id], tails[id]), new, #packed + 2)
end

-- Appends events that are sealed already; `tos` are the states that the moves among them led to.
local function append(id, events, tos, is_unit)
  if #events > 0 then
    local n = call('RPUSH', P .. 'e:' .. id, unpack(events))
    if n > LONG then gather(zadds, 'long', n, id) end
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

-- Takes a row that cannot be used out of the way of the others.
local function set_aside(id)
  if rows[id] then
    set(id, {[LANE] = ASIDE})
  else
    gather(zadds, 'aside', 0, id)
  end
end

-- Brings blocked rows of a key back, as many as it has free slots: the best of every queue, so that a paused queue
-- cannot keep the slot from the others.
local function free_slots(key)
  local queues = call('SMEMBERS', P .. 'blockedq:' .. key)
  if #queues == 0 then return end
  table.sort(queues)
  local most = call('HGET', P .. 'limits', key)
  local free = MOST_FREED
  if most then free = math.max(0, math.min(free, tonumber(most) - call('SCARD', P .. 'slots:' .. key))) end
  local left = #queues
  for _, queue in ipairs(queues) do
    local name = blocked_key(key, queue)
    local back = free > 0 and call('ZRANGE', P .. name, 0, free - 1) or {}
    load(back)
    for _, id in ipairs(back) do
      if rows[id] then
        set(id, {[LANE] = READY})
      else
        gather(zrems, name, id)
      end
    end
    flush()
    if call('EXISTS', P .. name) == 0 then
      call('SREM', P .. 'blockedq:' .. key, queue)
      left = left - 1
    end
  end
  if left == 0 then call('SREM', P .. 'blockedkeys', key) end
end

-- waking -----------------------------------------------------------------------------------------
-- Subscribers come and go by wake.lua. Those of a queue sleep in l:queue:<queue>, and taking one out is the wake: no
-- more are woken than there are rows. Those of a job or a session are all told, every time. A listener that has died
-- is passed over.

-- Tells one subscription; false if its listener is dead.
local function tell(member, text)
  local listener, subscription = string.match(member, '^(%S+) (%S+)$')
  if not listener or call('EXISTS', P .. 'ear:' .. listener) == 0 then return false end
  call('RPUSH', P .. 'w:' .. listener, subscription .. text)
  call('PEXPIRE', P .. 'w:' .. listener, 60000)
  return true
end

local function rouse(queue, n, tick)
  while n > 0 do
    local chosen = call('SPOP', P .. 'l:queue:' .. queue, n)
    if #chosen == 0 then return end
    for _, member in ipairs(chosen) do
      if tell(member, ' ' .. tick .. ' ' .. queue) then n = n - 1 end
    end
  end
end

local function deliver(topic, n)
  if sub(topic, 1, 6) == 'queue:' then
    local queue = sub(topic, 7)
    return rouse(queue, n, call('HINCRBY', P .. 'ticks', queue, 1))
  end
  for _, member in ipairs(call('SMEMBERS', P .. 'l:' .. topic)) do
    if not tell(member, '') then call('SREM', P .. 'l:' .. topic, member) end
  end
end

local function deliver_settled()
  local keys, n = {}, #settled
  for i = 1, n do keys[i] = P .. 'l:job:' .. settled[i] end
  local some = false
  for first = 1, n, MANY do
    some = call('EXISTS', unpack(keys, first, math.min(first + MANY - 1, n))) > 0 or some
  end
  if not some then return end
  for i = 1, n do deliver('job:' .. settled[i], 1) end
end

-- The last step of every script that writes: all indexes, the slots that came free, the counts, and who must hear of it.
local function finish()
  flush()
  for key in pairs(freed) do free_slots(key) end
  for queue, at in pairs(soonest) do
    -- those whose time has passed count for nothing: in a queue that nobody serves they stay
    local sooner = call('ZRANGE', P .. 'due:' .. queue, '(' .. NOW, '(' .. at, 'BYSCORE', 'LIMIT', 0, 1)
    local topic = 'queue:' .. queue
    if #sooner == 0 and (wakes[topic] or 0) < 1 then wakes[topic] = 1 end
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
  for topic, n in pairs(wakes) do
    if n > 0 then deliver(topic, n) end
  end
  if #settled > 0 then deliver_settled() end
end

-- answering --------------------------------------------------------------------------------------

-- Whether a leader's epoch is over; `lead` is [name, holder, epoch].
local function deposed(lead)
  if not lead then return false end
  local found = call('HMGET', P .. 'lead:' .. lead[1], 'holder', 'epoch', 'until_ms')
  return not (found[1] == lead[2] and tonumber(found[2]) == lead[3] and tonumber(found[3]) > LEASE)
end
