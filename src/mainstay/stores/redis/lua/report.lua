-- Records the reports of holders. Returns one digit per report: 0 if the token is no longer held.

local answers = report_all(ARGS[1])
finish()
return {NOW, answers}
