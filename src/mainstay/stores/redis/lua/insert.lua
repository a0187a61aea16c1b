-- Inserts jobs, all or nothing.

local answers, refused = plan(ARGS[1], {})
if not answers then return {NOW, 'refused', pack(refused)} end
enter()
finish()
return {NOW, 'done', pack(answers)}
