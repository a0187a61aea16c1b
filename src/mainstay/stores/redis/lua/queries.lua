-- Reads of many keys at one moment. Arguments: the query, and its arguments.

local does = {}

-- Jobs with their events: row, fixed part, the part beside it, and the list, for each. Not a MULTI of plain reads: a full
-- server queues none.
function does.histories(ids)
  local answer = {NOW}
  for i, id in ipairs(ids) do
    local parts = call('MGET', P .. 'r:' .. id, P .. 'f:' .. id, P .. 'x:' .. id)
    answer[i + 1] = {parts[1], parts[2], parts[3], call('LRANGE', P .. 'e:' .. id, 0, -1)}
  end
  return answer
end

-- A job with some of its events: row, fixed part, the part beside it; and up to `most` events after number `after`. Events
-- are numbered without gaps; if there is a gap, something is damaged, and all of them are returned.
function does.history(id, after, most)
  local key = P .. 'e:' .. id
  local function number(place)
    local ok, _, seq = pcall(unpack_one, call('LINDEX', key, place) or '', 1)
    return ok and tonumber(seq) or 0
  end
  local first = math.max(0, after + 1 - number(0))
  local fits = number(0) > 0 and number(-1) - number(0) == call('LLEN', key) - 1
  local parts = call('MGET', P .. 'r:' .. id, P .. 'f:' .. id, P .. 'x:' .. id)
  local events = fits and call('LRANGE', key, first, first + most - 1) or call('LRANGE', key, 0, -1)
  return {NOW, parts[1], parts[2], parts[3], events}
end

-- The first n ids of each of these lists between two bounds, in order or in reverse.
function does.ids(lists, low, high, backwards, n)
  local answer = {NOW}
  for i, name in ipairs(lists) do
    if backwards then
      answer[i + 1] = call('ZRANGE', P .. name, high, low, 'BYLEX', 'REV', 'LIMIT', 0, n)
    else
      answer[i + 1] = call('ZRANGE', P .. name, low, high, 'BYLEX', 'LIMIT', 0, n)
    end
  end
  return answer
end

-- The jobs among these that are in a queue, and those that are unreadable.
function does.in_queue(ids, queue)
  load(ids)
  local answer = {NOW}
  for _, id in ipairs(ids) do
    if there(id) and not (rows[id] and rows[id][QUEUE] ~= queue) then answer[#answer + 1] = id end
  end
  return answer
end

-- When the next waiting row of these queues becomes ready, '' if none waits.
function does.due(queues)
  local first
  for _, queue in ipairs(queues) do
    if call('SISMEMBER', P .. 'paused', queue) == 0 then
      local found = call('ZRANGE', P .. 'due:' .. queue, 0, 0, 'WITHSCORES')
      local at = tonumber(found[2])
      -- a job that waits for other jobs, or for cores, has no due time
      if at and at < NEVER and (not first or at < first) then first = at end
    end
  end
  return {NOW, first and string.format('%d', first) or ''}
end

-- The number of units of a job in each of these statuses, without its drivers; and before that the token of the job: if it
-- is higher than the number of given drivers, there may be more of them.
function does.unit_counts(parent, statuses, drivers)
  local row = row_of(parent)
  local answer = {NOW, row and row[TOKEN] or 0}
  for i, status in ipairs(statuses) do
    local key = P .. 'units:' .. parent .. ':' .. status
    local n = call('ZCARD', key)
    for _, id in ipairs(drivers) do
      if n == 0 then break end
      if call('ZSCORE', key, id) then n = n - 1 end
    end
    answer[i + 2] = n
  end
  return answer
end

-- Since when the oldest ready row of a queue has been ready, nil if there is none. Rows whose rank is not their time have a
-- list by time. The others are in the queue at their time, and can be counted up to any time: so the first of them is found
-- by binary search.
local function oldest_in(queue)
  local ready, boosted = P .. 'ready:' .. queue, P .. 'boosted:' .. queue
  local best = tonumber(call('ZRANGE', P .. 'since:' .. queue, 0, 0, 'WITHSCORES')[2])
  local first = tonumber(call('ZRANGE', ready, 0, 0, 'WITHSCORES')[2])
  if not first or not best then return first or best end
  local function others_up_to(at)
    at = string.format('%d', at)
    return call('ZCOUNT', ready, '-inf', at) - call('ZCOUNT', boosted, '-inf', at)
  end
  local low, high = math.min(first, best), best
  if others_up_to(high) == 0 then return best end
  while low < high do
    local middle = math.floor((low + high) / 2)
    if others_up_to(middle) > 0 then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

function does.stats(minutes, statuses, longest_ms)
  local oldest, seen = {}, {}
  local counts = call('HGETALL', P .. 'tallies')
  for i = 1, #counts, 2 do
    local queue = string.match(counts[i], '^(.*)%z')
    if queue and not seen[queue] then
      seen[queue] = true
      local since = oldest_in(queue)
      if since then oldest[#oldest + 1] = {queue, string.format('%d', since)} end
    end
  end
  local moves = {}
  local minute = math.floor(NOW / 60000)
  for i = 0, minutes - 1 do moves[i + 1] = call('HGETALL', P .. 'flow:' .. string.format('%d', minute - i)) end
  local counted, earlier = '', {}
  for i = 0, minutes - 1 do
    if #moves[i + 1] > 0 then counted = string.format('%d', minute - i) end
  end
  for i = minutes, 59 do earlier[#earlier + 1] = P .. 'flow:' .. string.format('%d', minute - i) end
  if call('EXISTS', unpack(earlier)) > 0 then counted = string.format('%d', minute - minutes) end
  local first = ''
  for _, status in ipairs(statuses) do
    local id = call('ZRANGE', P .. 'status:' .. status, 0, 0)[1]
    if id and (first == '' or id < first) then first = id end
  end
  local routed = {}
  for _, place_of in ipairs(call('SMEMBERS', P .. 'routes')) do
    routed[#routed + 1] = {place_of, call('ZCARD', P .. 'routed:' .. place_of)}
  end
  local alive = 0
  for _, id in ipairs(call('SMEMBERS', P .. 'sessions')) do
    if call('HGET', P .. 's:' .. id, 'dead') == '0' then alive = alive + 1 end
  end
  local held = {}
  for _, name in ipairs(call('SMEMBERS', P .. 'leads')) do
    local lead = call('HMGET', P .. 'lead:' .. name, 'holder', 'epoch', 'until_ms')
    local until_ms = tonumber(lead[3] or 0) or 0
    if lead[1] and until_ms > LEASE and until_ms <= LEASE + longest_ms
      and call('HGET', P .. 's:' .. lead[1], 'dead') ~= '1' then
      held[#held + 1] = {name, lead[1], lead[2], lead[3]}
    end
  end
  return {NOW, counts, oldest, moves, alive, call('ZCARD', P .. 'aside'), string.format('%d', NOW), counted, first, held,
    routed}
end

return does[ARGS[1]](unpack(ARGS, 2))
