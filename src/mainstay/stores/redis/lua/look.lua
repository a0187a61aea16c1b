-- Reads everything that may be needed to decide on some changes. Arguments: [id, the status it settles in or false,
-- whether its parent may be needed] for each change. Returns [id, row, fixed part, beside it]; [job, its waiters]; [job,
-- the number of jobs it waits for]; [parent, the number of its open units].

local WANTED = #ARGS[1]
local ids, seen, watch, left, open = {}, {}, {}, {}, {}

local function want(id)
  if not seen[id] then
    seen[id] = true
    ids[#ids + 1] = id
  end
end

for _, change in ipairs(ARGS[1]) do want(change[1]) end
load(ids)
for _, change in ipairs(ARGS[1]) do
  local id, status = change[1], change[2]
  local row = rows[id]
  if status then
    local watchers = call('ZRANGE', P .. 'watch:' .. id, 0, -1)
    watch[#watch + 1] = {id, watchers}
    for _, waiter in ipairs(watchers) do
      local n = call('SCARD', P .. 'left:' .. waiter)
      left[#left + 1] = {waiter, n}
      -- a waiter that keeps waiting is not read
      if status ~= 'succeeded' or n <= WANTED then want(waiter) end
    end
  end
  if status and change[3] and row and row[PARENT] then
    open[#open + 1] = {row[PARENT], call('SCARD', P .. 'open:' .. row[PARENT])}
    want(row[PARENT])
  end
end

local keys, found = {}, {}
for i, id in ipairs(ids) do
  keys[3 * i - 2], keys[3 * i - 1], keys[3 * i] = P .. 'r:' .. id, P .. 'f:' .. id, P .. 'x:' .. id
end
local parts = read_all(keys)
for i, id in ipairs(ids) do found[i] = {id, parts[3 * i - 2], parts[3 * i - 1], parts[3 * i]} end
return {NOW, found, watch, left, open}
