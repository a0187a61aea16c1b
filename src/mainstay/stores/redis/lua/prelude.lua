-- The beginning of every script of the Redis store: the key layout, the clock, and how rows are read. Scripts that write
-- continue with writes.lua, slots.lua and wakes.lua.
--
-- Key layout. All keys start with the namespace in braces, so they share one slot of a cluster: {mainstay}:r:<id>
--
--   r:<id>            string   the row: [[fields for scripts], [head, error, result]]; see redis/rows.py
--   f:<id>            string   the fixed part: [[group, key, tags], [the rest]]
--   x:<id>            string   beside the row: [[progress, progress_ms, trimmed_seq], [checkpoint, trimmed_digest]]
--   e:<id>            list     its events, oldest first; of a deleted job the tombstone. Without that of an open claim
--   all               zset     every row's id (score 0: in order of id)
--   status:<status>   zset     ids of jobs (not units) in a status (score 0)
--   ready:<queue>     zset     claimable rows by rank, except those that a claim found past their deadline
--   boosted:<queue>   zset     those of them whose rank is not their due_ms, by rank; since:<queue> by due_ms
--   due:<queue>       zset     rows that wait for a time, by due_ms (AWAITS for those that wait for other jobs)
--   blocked:<n>:<key>:<queue>  zset  rows over the limit of a concurrency key, by rank; n is the key's length
--   blockedq:<key>    set      queues that may have rows blocked by this key
--   blockedkeys       set      keys that may have blocked rows
--   aside             zset     unreadable rows (score 0)
--   routed:<place>    zset     rows whose task is missing in a worker of their queue, by rank; a place is <queue> NUL <task>
--   route             hash     id of such a row -> its place
--   routes            set      places that may have such rows
--   held:<session>    set      ids a session holds
--   holders           set      sessions that hold jobs
--   stopping:<session>  set    ids a session holds that have to stop
--   assigned:<session>  set    ids a session holds that a leader assigned to it and that it has not confirmed. A program of
--                              an older version does not remove one that it takes back, so readers look at the row
--   slots:<key>       set      ids held under a concurrency key
--   expires           zset     unsettled rows by expires_ms
--   keep              zset     settled jobs (not units) with their own retention, by expires_ms
--   long              zset     rows with more than LONG written events, by the number of events
--   unique            hash     unique key -> the unsettled id that holds it
--   keys              hash     scope NUL name -> <until_ms>:<job id>:<content>, the idempotency keys
--   keysuntil         zset     the fields of `keys` by until_ms
--   units:<id>        zset     units of a job (score 0); units:<id>:<status> the units in a status
--   open:<id>         set      units of a job that are not settled
--   tag:<tag>, group:<id>, key:<key>   zset   ids with this tag, group, idempotency key (score 0)
--   on:<id>           list     the ids a job waits or waited for, as given
--   left:<id>         set      the ids a job waits for that have not settled
--   watch:<id>        zset     the ids that wait for a job (score 1: for any end of it; 0: for its success)
--   refusals:<id>     hash     token -> a refused write
--   gone              zset     ids of deleted jobs, whose tombstone stays (score 0)
--   tallies           hash     queue NUL status -> number of jobs
--   flow:<minute>     hash     status -> number of moves into it
--   s:<session>       hash     a session: worker, host, pid, started_ms, beat_ms, lease_s, dead (0 or 1), and of its last
--                              claim nonce and claimed (ids and tokens); marks: of its last claims with a mark, the
--                              mark and the ids and tokens, in turn; offer (JSON) and tasks (msgpack) if it announces an
--                              offer. A standing one has a lease without an end, and its own in own_lease_s
--   sessions          set      ids of sessions
--   queues            hash     queue -> JSON of an operator's settings
--   paused            set      queues that are paused
--   limits            hash     concurrency key -> maximum held at once
--   lead:<name>       hash     holder, epoch, until_ms
--   leads             set      names of leaderships
--   schedules         set      names of schedules
--   schedule:<name>   hash     spec, paused (0 or 1), last (the last tick, '' for none)
--   ticked:<name>     zset     times of ticks that have submitted their jobs (score: the time)
--   meta              hash     of the namespace: version (of this layout), audit (fingerprint of its audit key)
--   facts             hash     of the server: run (its run_id), back_ms (when it was first seen after a restart)
--   turn              string   the decision that has the turn to write some jobs; expires. turn:ids, a set, has those jobs
--   l:<topic>         set      subscribers of queue:<queue>, job:<id> or session:<id>: "<listener> <subscription>". They
--                              expire unless their listener renews them
--   w:<listener>      list     the wakes of an open store, "<subscription> <tick> <queue>"; expires
--   ear:<listener>    string   exists while an open store gives signs of life; expires
--   ticks             hash     queue -> number of its wakes. A subscriber that goes to sleep sends the number it knows, and
--                              stays awake if there was another wake: none is missed between a claim and the sleep
--
-- Arguments: the time to use ('' for the server's own), the lease time, '1' if this call may have been made before, then
-- msgpack. A reply begins with the time.
--
-- Nothing is written before everything is decided: a script that fails halfway is not undone. So writes are collected, and
-- only `flush` writes them; see writes.lua.

local P = KEYS[1]
local call = redis.call
local pack, unpack_one = cmsgpack.pack, cmsgpack.unpack_one
local sub = string.sub

local STATUS, VERSION, TOKEN, SESSION, LANE, RANK, DUE, EXPIRES, SETTLED = 1, 2, 3, 4, 5, 6, 7, 8, 9
local QUEUE, PARENT, LIMITED, UNIQUE, STARTS, LOSSES = 10, 11, 12, 13, 14, 18
local STARTED, CLAIMED, CHANGED, REASON, OPEN = 19, 20, 21, 23, 25 -- and in reports.lua 22, 26, 27, 28
local LATE = 29 -- a claim found it past its deadline
local WIDTH = 29
local READY, WAITING, BLOCKED, ASIDE = 1, 2, 3, 4
-- Lua has room for 200 local names, so what belongs to routed rows is in one table
local routing = {LANE = 5, places = {}} -- places: id -> the place of a row that this script routes
local MANY = 4000 -- arguments of one command; Lua's stack holds 8000

local time = call('TIME')
local REAL = time[1] * 1000 + math.floor(time[2] / 1000)
local NOW = tonumber(ARGV[1]) or REAL
local LEASE = tonumber(ARGV[2]) or REAL
local AGAIN = ARGV[3] == '1'
local ARGS = ARGV[4] and cmsgpack.unpack(ARGV[4])

-- reading ----------------------------------------------------------------------------------------

local values, rows = {}, {} -- id -> the row as stored and as a table; false if it is missing or unreadable
local tails = {} -- id -> where in the stored row the part begins that no script packs

-- A row that a caller packed, as a table; and where its tail begins.
local function opened(value)
  local at, row = unpack_one(value, 1)
  return row, at + 1
end

-- A stored row, which may be damaged.
local function parsed(value)
  local ok, at, row = pcall(unpack_one, value, 1)
  if ok and at > 0 and type(row) == 'table' and #row == WIDTH and type(row[STATUS]) == 'string'
    and type(row[QUEUE]) == 'string' and type(row[VERSION]) == 'number' and type(row[LANE]) == 'number'
    and type(row[RANK]) == 'number' and type(row[DUE]) == 'number' and type(row[TOKEN]) == 'number' then
    return row, at + 1
  end
  return false
end

-- Reads many keys in few commands; false stands for missing ones.
local function read_all(keys)
  local found, n = {}, #keys
  for first = 1, n, MANY do
    local last = math.min(first + MANY - 1, n)
    local part = call('MGET', unpack(keys, first, last))
    for i = first, last do found[i] = part[i - first + 1] end
  end
  return found
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
  local found = read_all(keys)
  for i = 1, n do
    local id, value = want[i], found[i]
    values[id], rows[id] = value, false
    if value then rows[id], tails[id] = parsed(value) end
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

-- Where the value after this one (bytes, or false) begins.
local function behind(packed, at)
  local kind = string.byte(packed, at)
  if kind == 196 then return at + 2 + string.byte(packed, at + 1) end
  if kind == 197 then return at + 3 + struct.unpack('>I2', packed, at + 1) end
  if kind == 198 then return at + 5 + struct.unpack('>I4', packed, at + 1) end
  return at + 1
end

local besides = {} -- id -> the part beside a row, as it is or will be stored

-- The part beside a row: [progress, progress_ms, trimmed_seq]; and, as they are stored, checkpoint and digest.
local function beside_of(id)
  local value = besides[id]
  if value == nil then value = call('GET', P .. 'x:' .. id) end
  local ok, at, said = pcall(unpack_one, value or '', 1)
  if value and ok and at > 0 and type(said) == 'table' and #said == 3 then
    local digest = behind(value, at + 2)
    return said, sub(value, at + 2, digest - 1), sub(value, digest)
  end
  return {false, false, 0}, pack(false), bin(string.rep('\0', 32))
end

-- leadership -------------------------------------------------------------------------------------

-- Whether a leader's epoch is over; `lead` is [name, holder, epoch]. If it is, returns the current holder ('' for none) and
-- epoch (0 for none).
local function deposed(lead)
  if not lead then return false end
  local found = call('HMGET', P .. 'lead:' .. lead[1], 'holder', 'epoch', 'until_ms')
  local leads = (tonumber(found[3] or '') or 0) > LEASE
  if leads and found[1] == lead[2] and tonumber(found[2]) == lead[3] then return false end
  return {leads and found[1] or '', tonumber(found[2] or '') or 0}
end

-- Whether a session may get rows.
local function is_open(session)
  return call('HGET', P .. 's:' .. session, 'dead') == '0'
end
