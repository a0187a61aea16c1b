"""`mainstay load target`: a server to try load tests against."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...cli import JsonOption, OptionGroup, panel, print_line, screen
from ..extra import extra_needed

_response = panel("Responses")
_network = panel("Network")


class ServerOptions(OptionGroup, frozen=True, kw_only=True):
    """The options of the target; the fields are those of `TargetOptions`."""

    port: Annotated[int, _network("--port", "-p", min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = (
        8080
    )
    host: Annotated[str, _network("--host", help="Address to listen on.")] = "127.0.0.1"
    tls: Annotated[bool, _network("--tls", help="Serve HTTPS; without --cert, with a self-signed certificate.")] = False
    cert: Annotated[str | None, _network("--cert", metavar="FILE", help="Certificate (PEM); implies --tls.")] = None
    key: Annotated[
        str | None, _network("--key", metavar="FILE", help="Private key, if it is not in the file of the certificate.")
    ] = None
    tcp_port: Annotated[int | None, _network("--tcp-port", min=0, max=65535, help="Echo TCP on this port.")] = None
    udp_port: Annotated[int | None, _network("--udp-port", min=0, max=65535, help="Echo UDP on this port.")] = None
    latency: Annotated[str, _response("--latency", "-l", metavar="LATENCY", help="Delay before each response.")] = (
        "none"
    )
    errors: Annotated[
        str, _response("--errors", "-e", metavar="2%", help="Share of requests to / that fail, such as 2%.")
    ] = "0%"
    error_status: Annotated[
        int, _response("--error-status", min=100, max=599, help="Status code of these failures.")
    ] = 503
    size: Annotated[str, _response("--size", metavar="1KB", help="Size of the responses of /.")] = "2"
    seed: Annotated[int | None, _response("--seed", help="Seed of delays and errors; the same seed repeats them.")] = (
        None
    )


def target(given: ServerOptions, as_json: JsonOption = False) -> None:
    """Serve a target for load tests until Ctrl-C: with latencies, errors and sizes that you choose, and its own
    counters.

    / responds as the options say, or as the request says: /?delay=50ms&status=503&size=10KB. Other paths: /echo,
    /login, /me, /cookies, /redirect/3, /chunked, /gzip, /sse, /slow-body, /close, /reset, /ws, /stall?for=2s and
    /stats. The server speaks HTTP/1.1, HTTP/2 and WebSocket on one port.

    --latency applies to all paths except /stall and /stats; --errors and --size apply to /.

    By default only this machine can reach it; see --host.

    Latencies: none, 20ms, "uniform 10ms 30ms", "normal 20ms 5ms", "lognormal 20ms 0.5", "exponential 20ms", "bimodal
    20ms 1.5s 1%" and "trace p50=20ms p99=80ms p100=1s".

    Exit codes: 0 stopped by Ctrl-C or SIGTERM, 2 could not start.

    [bold]Examples[/bold]

      mainstay load target
      mainstay load target --latency 20ms --errors 2% --size 1KB
      mainstay load target --port 0 --latency "bimodal 20ms 1.5s 1%" --seed 1 --json
      mainstay load target --tls --tcp-port 9001 --udp-port 9002
    """
    with extra_needed("the target"):
        from ..target import TargetOptions, serve  # noqa: PLC0415 - an extra
        from . import target_view as view  # noqa: PLC0415 - the same
    options = TargetOptions(**msgspec.structs.asdict(given))
    console = screen()
    if as_json:
        counts = serve(options, started=lambda served: print_line(view.place(served)))
        print_line(msgspec.to_builtins(counts))
        return
    line = view.CountsLine(console) if console.is_terminal else None
    counts = serve(
        options,
        started=lambda served: view.show_place(served, console),
        each_second=None if line is None else lambda served: line.show(served.counts()),
    )
    if line is not None:
        line.clear()
    view.show_counts(counts, console)
