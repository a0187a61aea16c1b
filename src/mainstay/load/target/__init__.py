"""A server to test against: known latencies, errors and sizes, and its own counts. `mainstay load target`.

Start from `TargetServer` (in a running loop) or `serve` (a process of its own); `TargetOptions` sets its behaviour. All
routes except /stall and /stats have the latency of the options, or that of `?delay=`. Routes:

    /                      the errors and the size of the options; by query: delay, status, size
    /echo                  what was sent, as JSON
    /login, /me            a token for {"user": "ann"}, and its user; as a cookie, too
    /cookies?name=value    sets cookies, and shows the received ones
    /redirect/3            three redirects, then /
    /chunked?n=3           a body of unknown length
    /gzip                  a compressed body
    /sse?n=5&every=100ms   server-sent events
    /slow-body?for=1s      a body that takes its time
    /close, /reset         end the connection without an answer
    /ws                    WebSocket echo
    /stall?for=2s          stalls all other routes for this time; is itself answered at once
    /stats, /stats/reset   the target's own counts, with the requested and the imposed delays
    /stats/delays          each of the last million of these delays
"""

from .counts import Counts, Delays, PathCounts
from .latency import DelayDistribution
from .options import TargetOptions
from .server import TargetServer, serve

__all__ = ["Counts", "DelayDistribution", "Delays", "PathCounts", "TargetOptions", "TargetServer", "serve"]
