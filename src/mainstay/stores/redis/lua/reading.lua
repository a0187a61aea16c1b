-- What is asked of many keys at one moment. Arguments: what is asked, and of what.

local does = {}

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
