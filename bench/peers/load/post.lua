-- wrk posts 1 KB of JSON
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"name": "ada", "text": "' .. string.rep("x", 997) .. '"}'
