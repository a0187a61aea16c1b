-- Records what holders say. Answers with one digit per report: 0 where the token is not held any more.

local answers = report_all(ARGS[1])
finish()
return {NOW, answers}
