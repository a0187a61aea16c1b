-- Reports of holders between moves: [id, session, token, started_ms, progress, checkpoint], false for none.

local EXTRA, RUN, STALL, GRACE = 22, 26, 27, 28

-- When a running job overruns; see model.expiry.
local function expiry(row, progress_ms)
  local started, ends = row[STARTED], nil
  if not started then return false end
  if row[RUN] then ends = started + row[EXTRA] + row[RUN] end
  if row[STALL] then
    local silent = math.max(started, progress_ms or 0) + row[STALL]
    if not ends or silent < ends then ends = silent end
  end
  return ends and ends + row[GRACE] or false
end

local function report(item)
  local id = item[1]
  local row = row_of(id)
  if not row or row[SESSION] ~= item[2] or row[TOKEN] ~= item[3] then return false end
  local begins = item[4] and not row[STARTED]
  local progress, checkpoint = item[5], item[6]
  if not (begins or progress or checkpoint) then return true end
  local said, kept, digest = beside_of(id)
  if progress then said[1], said[2] = progress, NOW end
  if checkpoint then kept = bin(checkpoint) end
  if progress or checkpoint then set_beside(id, said, kept, digest) end
  local new = copy(row)
  if begins then new[STARTED], new[STARTS] = item[4], row[STARTS] + 1 end
  -- while it has to stop, the time is the end of the grace, and progress does not extend it
  if (begins or progress) and not STOPPING[row[STATUS]] then new[EXPIRES] = expiry(new, said[2]) end
  if begins or new[EXPIRES] ~= row[EXPIRES] then replace(id, new) end
  return true
end

local function report_all(items)
  local ids, answers = {}, {}
  for i, item in ipairs(items) do ids[i] = item[1] end
  load(ids)
  for i, item in ipairs(items) do answers[i] = report(item) and '1' or '0' end
  return table.concat(answers)
end
