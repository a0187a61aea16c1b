-- wrk with a method and a body from a file: wrk -s web_wrk.lua URL -- METHOD [FILE]
-- and what it found as one line of JSON

function init(args)
  wrk.method = args[1]
  if args[2] then
    local file = assert(io.open(args[2], "rb"))
    wrk.body = file:read("*a")
    file:close()
    wrk.headers["Content-Type"] = "application/json"
  end
end

function done(summary, latency, requests)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format(
    '\n{"requests": %d, "failed": %d, "elapsed_s": %f, "p50_ms": %f, "p99_ms": %f}\n',
    summary.requests, failed, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3
  ))
end
