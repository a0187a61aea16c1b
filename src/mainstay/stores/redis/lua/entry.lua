-- Inserting rows: first everything is planned, then everything is written.
--
-- A new job is [id, row, fixed part, events, states moved to, tags, group, key, idempotency key as [field, content,
-- until_ms], whether a unique clash is refused, whether it must be new, the ids it waits for, the status in which each of
-- those was assumed to have settled ('' for not yet), whether it waits for any end of them, the part beside the row];
-- false stands for none.
local N_ID, N_ROW, N_FIXED, N_EVENTS, N_TOS, N_TAGS, N_GROUP, N_KEY, N_IDEMPOTENCY = 1, 2, 3, 4, 5, 6, 7, 8, 9
local N_REFUSES, N_MUST_BE_NEW, N_AFTER, N_ENDED, N_ANY_END, N_BESIDE = 10, 11, 12, 13, 14, 15
local K_FIELD, K_CONTENT, K_UNTIL = 1, 2, 3

local fresh, fresh_ids, awaits = {at = {}}, {}, {} -- fresh.at: by the place of a new job, whether it will be inserted

local function held_by_key(field, batch)
  if batch[field] then return batch[field][1], batch[field][2] end
  local found = call('HGET', P .. 'keys', field)
  if not found then return end
  local until_ms, id, content = string.match(found, '^(%d+):([^:]*):(.*)$')
  if until_ms and tonumber(until_ms) > NOW then return id, content end
end

-- Whether this very job is stored: it was sent again, because its reply was lost. The digest of an event is the last of its
-- values, 32 bytes.
local function is_ours(job)
  local id = job[N_ID]
  if not there(id) then return false end
  local digest = sub(job[N_EVENTS][1], -34)
  if sub(call('LINDEX', P .. 'e:' .. id, 0) or '', -34) == digest then return true end
  local said, _, trimmed = beside_of(id)
  return said[3] == 1 and trimmed == digest
end

-- The status in which an awaited job has settled, '' if it has not, nil if it does not exist.
local function ended(id, settling)
  if settling[id] then return settling[id] end
  local row = row_of(id)
  if row then return row[SETTLED] and row[STATUS] or '' end
  if there(id) then return '' end -- it is unreadable; the check repairs it
end

-- Decides on every new job; `settling` has the status of each job that settles in this step, `taking` the unique keys that
-- jobs take again in it, with their ids. Returns, for each, the job that stands for it: [id, 'key' or 'unique'], false for
-- itself, or 0 if it was stored by an earlier call; or nil and the refusal: [what, index, more]. 'judge' asks for another
-- attempt: some of the awaited jobs have settled.
local function plan(jobs, settling, taking)
  local answers, keys, uniques, stands, parents, news, ids = {}, {}, taking or {}, {}, {}, {}, {}
  for i, job in ipairs(jobs) do ids[i] = job[N_ID] end
  load(ids)
  for i, job in ipairs(jobs) do
    local id, key = job[N_ID], job[N_IDEMPOTENCY]
    local row, tail = opened(job[N_ROW])
    local existing, by, ours = nil, '', is_ours(job)
    fresh.at[i] = false
    if key and not ours then
      local holder, content = held_by_key(key[K_FIELD], keys)
      if holder then
        if content ~= key[K_CONTENT] then return nil, {'key', i - 1, holder} end
        existing, by = holder, 'key'
      end
    end
    local unique = row[UNIQUE]
    if not existing and unique and not ours then
      local holder = uniques[unique]
      if not holder then
        holder = call('HGET', P .. 'unique', unique)
        if holder and settling[holder] then holder = nil end
      end
      if holder then
        if job[N_REFUSES] and holder ~= id then return nil, {'unique', i - 1, holder} end
        existing, by = holder, 'unique'
      end
    end
    if ours then
      answers[i], stands[id] = 0, id
      if AGAIN then answers[i] = false end
    elseif existing then
      if job[N_MUST_BE_NEW] then return nil, {'new', i - 1, existing} end
      answers[i], stands[id] = {existing, by}, existing
    else
      if fresh_ids[id] or there(id) or call('EXISTS', P .. 'e:' .. id) == 1 then return nil, {'id', i - 1, id} end
      local parent = row[PARENT]
      if parent and not parents[parent] and not fresh_ids[parent] then
        if not there(parent) then return nil, {'parent', i - 1, parent} end
        parents[parent] = true
      end
      if job[N_AFTER] then
        local found, seen = {}, {}
        for place_, on in ipairs(job[N_AFTER]) do
          local stand = stands[on] or on
          if not fresh_ids[stand] then
            local status = ended(stand, settling)
            if not status then
              if not stands[on] then return nil, {'after', i - 1, place_ - 1, on} end
              status = GONE
            end
            if status ~= job[N_ENDED][place_] then
              news[#news + 1] = on
              news[#news + 1] = status
            end
          end
          if not seen[stand] then
            seen[stand] = true
            found[#found + 1] = stand
          end
        end
        awaits[id] = {found, job[N_ANY_END] and 1 or 0}
      end
      if key then keys[key[K_FIELD]] = {id, key[K_CONTENT]} end
      if unique then uniques[unique] = id end
      fresh_ids[id], fresh.at[i] = true, true
      fresh[#fresh + 1] = {job, row, tail}
      answers[i] = false
    end
  end
  if #news > 0 then return nil, {'judge', news} end
  return answers
end

local function enter()
  for _, new in ipairs(fresh) do
    local job, row = new[1], new[2]
    local id, key = job[N_ID], job[N_IDEMPOTENCY]
    values[id], rows[id] = nil, nil
    put(id, job[N_ROW], row, new[3])
    append(id, job[N_EVENTS], job[N_TOS], row[PARENT])
    keep('f:' .. id, job[N_FIXED])
    if job[N_BESIDE] then keep('x:' .. id, job[N_BESIDE]) end
    gather(zadds, 'all', '0', id)
    if row[PARENT] then
      gather(zadds, 'units:' .. row[PARENT], 0, id)
      concerns(row[PARENT])
    end
    if job[N_TAGS] then
      for _, tag in ipairs(job[N_TAGS]) do gather(zadds, 'tag:' .. tag, 0, id) end
    end
    if job[N_GROUP] then gather(zadds, 'group:' .. job[N_GROUP], 0, id) end
    if job[N_KEY] then gather(zadds, 'key:' .. job[N_KEY], 0, id) end
    if key then
      gather(hsets, 'keys', key[K_FIELD], string.format('%d', key[K_UNTIL]) .. ':' .. id .. ':' .. key[K_CONTENT])
      gather(zadds, 'keysuntil', key[K_UNTIL], key[K_FIELD])
    end
  end
  for id, wait in pairs(awaits) do
    local found, any_end = wait[1], wait[2]
    for _, on in ipairs(found) do
      local row = row_of(on)
      gather(pushes, 'on:' .. id, on)
      if there(on) and not (row and row[SETTLED]) then
        gather(sadds, 'left:' .. id, on)
        gather(zadds, 'watch:' .. on, any_end, id)
        concerns(on)
      end
    end
  end
end
