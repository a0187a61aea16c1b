"""A server to test against: known latencies, errors and sizes, and its own counts. `mainstay load target`.

Start from `Target` (in a running loop) or `serve` (a process of its own); `TargetOptions` says how it behaves. All
routes have the latency of the options, or that of `?delay=`, but for /stall and /stats. Routes:

    /                      the errors and the size of the options; by query: delay, status, size
    /echo                  what was sent, as JSON
    /login, /me            a token for {"user": "ann"}, and who has it; as cookie too
    /cookies?name=value    sets cookies, and shows those that came
    /redirect/3            three redirects, then /
    /chunked?n=3           a body of unknown length
    /gzip                  a compressed body
    /sse?n=5&every=100ms   server-sent events
    /slow-body?for=1s      a body that takes its time
    /close, /reset         end the connection without an answer
    /ws                    WebSocket echo
    /stall?for=2s          answers nothing for so long; itself it answers at once
    /stats, /stats/reset   the target's own counts, and what delays it was asked for and imposed
    /stats/delays          each of the last million of these
"""

from .counts import Counts, Delays, PathCounts
from .latency import Latency
from .options import TargetOptions
from .server import Target, serve

__all__ = ["Counts", "Delays", "Latency", "PathCounts", "Target", "TargetOptions", "serve"]
