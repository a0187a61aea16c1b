-- All that may have to be known to decide on some changes, in one step. Arguments: [id, the status it settles in, or
-- false] for each change. Answers with [id, row, fixed part, beside it]; [job, those who wait for it]; [job, how many it
-- waits for]; [parent, how many of its units are open].

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
      -- one that keeps waiting is not looked at
      if status ~= 'succeeded' or n <= WANTED then want(waiter) end
    end
  end
  if status and row and row[PARENT] then
    open[#open + 1] = {row[PARENT], call('SCARD', P .. 'open:' .. row[PARENT])}
    want(row[PARENT])
  end
end

local found = {}
for first = 1, #ids, 1000 do
  local keys, last = {}, math.min(first + 999, #ids)
  for i = first, last do
    local n = #keys
    keys[n + 1], keys[n + 2], keys[n + 3] = P .. 'r:' .. ids[i], P .. 'f:' .. ids[i], P .. 'x:' .. ids[i]
  end
  local parts = call('MGET', unpack(keys))
  for i = first, last do
    local at = 3 * (i - first)
    found[i] = {ids[i], parts[at + 1], parts[at + 2], parts[at + 3]}
  end
end
return {NOW, found, watch, left, open}
