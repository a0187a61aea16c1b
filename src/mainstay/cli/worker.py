"""`mainstay worker`: run jobs, in the foreground, until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ..clock import duration_text, seconds
from ..errors import InvalidInput
from ..stores import shown_url
from ..worker import logs
from ..worker.messages import Hello
from ..worker.supervisor import Supervisor
from ..worker.worker_options import WorkerOptions
from .command import command

if TYPE_CHECKING:
    from ..report.metrics import Served


_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 64


def run_worker(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:APP", envvar="MAINSTAY_APP", help="The app, as module:variable.")
    ],
    queues: Annotated[
        str,
        typer.Option(
            "--queues",
            "-q",
            metavar="A,B",
            help="Queues to take jobs from, separated by commas.",
            show_default="the queues of the app",
        ),
    ] = "",
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            "-c",
            min=1,
            help="Jobs that each process runs at a time.",
            show_default="from the settings, 10",
        ),
    ] = None,
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, help="Number of engine processes.")] = 1,
    name: Annotated[str, typer.Option("--name", help="Name of the worker.", show_default="HOST-PID")] = "",
    grace: Annotated[
        str, typer.Option("--grace", help="Time that running jobs have to finish after the first signal.")
    ] = "30s",
    log_level: Annotated[
        str, typer.Option("--log-level", metavar="|".join(logs.LEVELS), help="Lowest level that is logged.")
    ] = "info",
    json_logs: Annotated[bool, typer.Option("--json-logs", help="Write logs as JSON, one object a line.")] = False,
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics on this address.", show_default="off"
        ),
    ] = "",
) -> None:
    """Run the jobs of an app until Ctrl-C or SIGTERM.

    The first signal drains: the worker takes no new jobs, running jobs have the grace period to finish, and unfinished
    jobs are returned to their queue without counting a failure. The second signal returns them at once. The third
    kills.

    SIGHUP replaces the engines one by one, to load new code without a gap.

    Exit codes: 0 stopped cleanly, 1 stopped, but an engine had to be killed (its jobs were returned to their queue), 2
    could not start.

    [bold]Examples[/bold]

      mainstay worker shop.jobs:app
      mainstay worker shop.jobs:app --queues mail,default --concurrency 50
      mainstay worker shop.jobs:app --processes 4 --grace 2m --json-logs
      mainstay worker shop.jobs:app --metrics 127.0.0.1:9464
    """
    orders = WorkerOptions(
        target=target,
        name=_worker_name(name),
        queues=_queues(queues),
        concurrency=concurrency,
        processes=processes,
        grace_s=seconds(grace, field="grace"),
        log_level=log_level,
        json_logs=json_logs,
    )

    logs.configure(log_level, as_json=json_logs)

    # before the first engine: what it counts with reads the environment when it starts
    with _served(metrics) as served:

        def ready(hello: Hello) -> None:
            if served is not None:
                served.watch(hello.store_url)
            if not json_logs:
                _banner(orders, hello, "" if served is None else served.url)

        raise typer.Exit(asyncio.run(Supervisor(orders, ready=ready).run()))


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "worker")(run_worker)


def _worker_name(given: str) -> str:
    if not given:
        # with the pid: several workers of one machine are told apart
        pid = f"-{os.getpid()}"
        return (_NOT_IN_A_NAME.sub("-", socket.gethostname())[: _LONGEST - len(pid)] or "worker") + pid
    if len(given) > _LONGEST or _NOT_IN_A_NAME.search(given):
        raise InvalidInput("name", f"{given!r} is not 1 to {_LONGEST} of letters, digits, '.', '_' and '-'")
    return given


def _queues(given: str) -> tuple[str, ...]:
    if not given:
        return ()
    names = tuple(dict.fromkeys(part.strip() for part in given.split(",")))
    if not all(names):
        raise InvalidInput("queues", f"{given!r} has an empty name in it; write them as mail,default")
    return names


@contextlib.contextmanager
def _served(address: str) -> Iterator[Served | None]:
    if not address:
        yield None
        return
    from ..report.metrics import serving  # noqa: PLC0415 - an extra

    with serving(address) as served:
        yield served


def _banner(orders: WorkerOptions, hello: Hello, metrics: str) -> None:
    concurrency = orders.concurrency or hello.settings.concurrency
    engines = f"{orders.processes} {'process' if orders.processes == 1 else 'processes'} x {concurrency} jobs"
    lines = (
        f"worker {orders.name} (pid {os.getpid()}) runs {orders.target}",
        f"  store    {shown_url(hello.store_url)}",
        f"  queues   {', '.join(hello.queues)}",
        f"  engines  {engines}",
        *([f"  metrics  {metrics}"] if metrics else []),
        f"  Ctrl-C   drains ({duration_text(orders.grace_s)}); twice: stops now",
    )
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(line, markup=False)
    named = os.environ.get("MAINSTAY_STORE", "")
    if named and shown_url(named) != shown_url(hello.store_url):
        rule = "the program names its store itself; write App() to let the variable name it"
        console.print(
            f"  warning  MAINSTAY_STORE is {shown_url(named)} and not used: {rule}", style="yellow", markup=False
        )
