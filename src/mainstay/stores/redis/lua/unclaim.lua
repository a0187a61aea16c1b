-- Undoes claims of damaged rows, and sets them aside. Arguments: ids, session.

load(ARGS[1])
for _, id in ipairs(ARGS[1]) do
  local row = rows[id]
  if row and row[SESSION] == ARGS[2] and row[OPEN] then
    -- no worker has got this claim, and its event is not written
    set(id, {
      [STATUS] = CLAIMABLE, [VERSION] = row[VERSION] - 1, [SESSION] = false, [CLAIMED] = false, [OPEN] = false,
      [LANE] = ASIDE,
    })
  end
end
finish()
return {NOW}
