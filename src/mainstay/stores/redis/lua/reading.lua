-- What is asked of many keys at one moment. Arguments: what is asked, and of what.

local does = {}

-- Jobs with their events: row, fixed part, what is beside it, and the list, for each. Not a MULTI of plain reads: a
-- server whose memory is full queues none.
function does.histories(ids)
  local answer = {NOW}
  for i, id in ipairs(ids) do
    local parts = call('MGET', P .. 'r:' .. id, P .. 'f:' .. id, P .. 'x:' .. id)
    answer[i + 1] = {parts[1], parts[2], parts[3], call('LRANGE', P .. 'e:' .. id, 0, -1)}
  end
  return answer
end

-- The first n ids of each of these lists between two ends, in order or the other way round.
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

-- Those of these jobs that are in a queue, and those that cannot be read.
function does.in_queue(ids, queue)
  load(ids)
  local answer = {NOW}
  for _, id in ipairs(ids) do
    if there(id) and not (rows[id] and rows[id][QUEUE] ~= queue) then answer[#answer + 1] = id end
  end
  return answer
end

-- When the next waiting row of these queues gets ready, '' if none waits.
function does.due(queues)
  local first
  for _, queue in ipairs(queues) do
    if call('SISMEMBER', P .. 'paused', queue) == 0 then
      local found = call('ZRANGE', P .. 'due:' .. queue, 0, 0, 'WITHSCORES')
      local at = tonumber(found[2])
      -- who waits for other jobs waits for no time
      if at and at < AWAITS and (not first or at < first) then first = at end
    end
  end
  return {NOW, first and string.format('%d', first) or ''}
end

-- Of every queue with jobs: its ready rows that go next. Rank is due time and priority, so the one that has waited
-- longest is among them unless hundreds go before it.
function does.stats(minutes, looked_at)
  local oldest, seen = {}, {}
  local counts = call('HGETALL', P .. 'tallies')
  for i = 1, #counts, 2 do
    local queue = string.match(counts[i], '^(.*)%z')
    if queue and not seen[queue] then
      seen[queue] = true
      local ids, best = call('ZRANGE', P .. 'ready:' .. queue, 0, looked_at - 1), nil
      load(ids)
      for _, id in ipairs(ids) do
        local row = rows[id]
        if row and (not best or row[DUE] < best) then best = row[DUE] end
      end
      if best then oldest[#oldest + 1] = {queue, string.format('%d', best)} end
    end
  end
  local moves = {}
  local minute = math.floor(NOW / 60000)
  for i = 0, minutes - 1 do moves[i + 1] = call('HGETALL', P .. 'flow:' .. string.format('%d', minute - i)) end
  local alive = 0
  for _, id in ipairs(call('SMEMBERS', P .. 'sessions')) do
    if call('HGET', P .. 's:' .. id, 'dead') == '0' then alive = alive + 1 end
  end
  return {NOW, counts, oldest, moves, alive, call('ZCARD', P .. 'aside'), string.format('%d', NOW)}
end

return does[ARGS[1]](unpack(ARGS, 2))
