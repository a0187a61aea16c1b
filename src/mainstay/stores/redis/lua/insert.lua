-- Inserts jobs, all or nothing. Arguments: the jobs, the leadership or false. Returns 'done' and the answers, 'refused' and
-- the reason, or 'deposed' with the current holder and epoch.

local now = deposed(ARGS[2])
if now and not AGAIN then return {NOW, 'deposed', now[1], now[2]} end
local answers, refused = plan(ARGS[1], {})
-- it may have been made before, and its reply lost
if now and not (answers and #fresh == 0) then return {NOW, 'deposed', now[1], now[2]} end
if not answers then return {NOW, 'refused', pack(refused)} end
enter()
finish()
return {NOW, 'done', pack(answers)}
