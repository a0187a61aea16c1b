-- Writes changes of different rows. Arguments: the leadership or false, the changes. Answers with one digit per change.

if deposed(ARGS[1]) then return {NOW, false} end
local answers = change_all(ARGS[2])
finish()
return {NOW, table.concat(answers)}
