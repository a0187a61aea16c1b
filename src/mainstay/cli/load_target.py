"""`mainstay load target`: the server that load tests are tried against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console

from ..report.load.words import bytes_text, counted
from .bundles import bundled
from .common import JsonOption, print_line, reflowed, screen
from .load_needs import load_needed

if TYPE_CHECKING:
    from ..load.target import Counts, Target

_ALIKE = "How it answers"
_PLACE = "Where it listens"

_TARGET = reflowed("""
Serve a target for load tests, until Ctrl-C: with latencies, errors and sizes that you choose, and counts of its own.

It answers / as it is told by the options, or by the request: /?delay=50ms&status=503&size=10KB. It also has /echo,
/login, /me, /cookies, /redirect/3, /chunked, /gzip, /sse, /slow-body, /close, /reset, /ws, /stall?for=2s and /stats,
and speaks HTTP/1.1, HTTP/2 and WebSocket on one port. Only this machine can reach it, unless --host says otherwise.

Latencies: none, 20ms, "uniform 10ms 30ms", "normal 20ms 5ms", "lognormal 20ms 0.5", "exponential 20ms",
"bimodal 20ms 1.5s 1%" and "trace p50=20ms p99=80ms p100=1s".

Exit codes: 0 ended by Ctrl-C or SIGTERM, 2 could not start.

[bold]Examples[/bold]

  mainstay load target
  mainstay load target --latency 20ms --errors 2% --size 1KB
  mainstay load target --port 0 --latency "bimodal 20ms 1.5s 1%" --seed 1 --json
  mainstay load target --tls --tcp-port 9001 --udp-port 9002
""")


def register(group: typer.Typer) -> None:
    """Add the command."""
    group.command(name="target", help=_TARGET)(target)


@bundled
def target(
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="0: any that is free.", rich_help_panel=_PLACE)
    ] = 8080,
    host: Annotated[str, typer.Option("--host", help="Which address.", rich_help_panel=_PLACE)] = "127.0.0.1",
    tls: Annotated[
        bool,
        typer.Option("--tls", help="HTTPS; without --cert, a certificate is made for it.", rich_help_panel=_PLACE),
    ] = False,
    cert: Annotated[
        str | None,
        typer.Option("--cert", metavar="FILE", help="Its certificate.", show_default=False, rich_help_panel=_PLACE),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="FILE", help="The key of it.", show_default=False, rich_help_panel=_PLACE),
    ] = None,
    tcp_port: Annotated[
        int | None,
        typer.Option(
            "--tcp-port",
            min=0,
            max=65535,
            help="Echo there what TCP brings.",
            show_default=False,
            rich_help_panel=_PLACE,
        ),
    ] = None,
    udp_port: Annotated[
        int | None,
        typer.Option(
            "--udp-port", min=0, max=65535, help="Echo there datagrams.", show_default=False, rich_help_panel=_PLACE
        ),
    ] = None,
    latency: Annotated[
        str, typer.Option("--latency", "-l", metavar="LATENCY", help="Before it answers.", rich_help_panel=_ALIKE)
    ] = "none",
    errors: Annotated[
        str, typer.Option("--errors", "-e", metavar="2%", help="Share of errors.", rich_help_panel=_ALIKE)
    ] = "0%",
    error_status: Annotated[
        int, typer.Option("--error-status", min=100, max=599, help="What those say.", rich_help_panel=_ALIKE)
    ] = 503,
    size: Annotated[str, typer.Option("--size", metavar="1KB", help="Of its answers.", rich_help_panel=_ALIKE)] = "2",
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", help="The same delays and errors each time.", show_default=False, rich_help_panel=_ALIKE
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Serve until told to stop."""
    with load_needed("the target"):
        from ..load.target import TargetOptions, serve  # noqa: PLC0415 - an extra
    options = TargetOptions(
        host=host,
        port=port,
        latency=latency,
        errors=errors,
        error_status=error_status,
        size=size,
        tls=tls,
        cert=cert,
        key=key,
        seed=seed,
        tcp_port=tcp_port,
        udp_port=udp_port,
    )
    console = screen()
    if as_json:
        counts = serve(options, started=lambda served: print_line(_place(served)))
        print_line(msgspec.to_builtins(counts))
        return
    line = _CountsLine(console) if console.is_terminal else None
    counts = serve(
        options,
        started=lambda served: _show(served, console),
        each_second=None if line is None else lambda served: line.show(served.counts()),
    )
    if line is not None:
        line.clear()
    _show_counts(counts, console)


def _place(served: Target) -> dict[str, Any]:
    return {
        "url": served.url,
        "port": served.port,
        "websocket": served.websocket_url,
        "tcp": served.tcp_url if served.tcp_port else None,
        "udp": served.udp_url if served.udp_port else None,
        "certificate": served.certificate or None,
    }


def _show(served: Target, console: Console) -> None:
    place = _place(served)
    lines = [f"the target is at {place['url']}"]
    lines += [f"  {name:<12}{place[name]}" for name in ("tcp", "udp", "certificate") if place[name]]
    if served.options.latency != "none" or served.options.errors not in ("0", "0%"):
        lines.append(f"  {'answers':<12}latency {served.options.latency}, errors {served.options.errors}")
    lines.append(f"  {'Ctrl-C':<12}ends it, and shows its counts (also at {place['url']}/stats)")
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    console.file.flush()


class _CountsLine:
    """One line that is written over each second."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._before = 0

    def show(self, counts: Counts) -> None:
        rate = max(0, counts.completed - self._before)
        self._before = counts.completed
        said = (
            f"{counted(counts.completed, 'answer')}, {rate:,}/s, {counts.open:,} open, {counts.under_way:,} under way"
        )
        self._write(said[: max(0, self._console.width - 1)])

    def clear(self) -> None:
        self._write("")

    def _write(self, text: str) -> None:
        self._console.file.write(f"\r{text}\x1b[K")
        self._console.file.flush()


def _show_counts(counts: Counts, console: Console) -> None:
    console.print(
        f"{counted(counts.begun, 'request')} over {counted(counts.connections, 'connection')}: "
        f"{counts.completed:,} answered, {counts.abandoned:,} abandoned; "
        f"{bytes_text(counts.received)} received, {bytes_text(counts.sent)} sent",
        soft_wrap=True,
        markup=False,
    )
    for status, n in sorted(counts.statuses.items()):
        console.print(f"  {status:<8}{n:>12,}", markup=False, soft_wrap=True)
