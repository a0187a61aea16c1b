"""`mainstay worker`: run jobs in the foreground until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ..clock import duration_text
from ..control import check_labels, check_short_name
from ..errors import InvalidInput
from ..stores import shown_url
from ..words import counted
from ..worker import Hello, Supervisor, WorkerOptions
from .commands import command
from .common import stderr_console
from .options import ProcessOptions, key_value

if TYPE_CHECKING:
    from ..report.metrics import MetricsServer


_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 64


def run_worker(
    process: ProcessOptions,
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
    name: Annotated[str, typer.Option("--name", help="Name of the worker.", show_default="HOST-PID")] = "",
    node: Annotated[
        str,
        typer.Option(
            "--node",
            metavar="NAME",
            help="Be the node of this name: also run work that is placed on nodes, in one more engine process.",
            show_default="no node",
        ),
    ] = "",
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="KEY=VALUE", help="A label of the node, by which jobs select nodes. Repeatable."
        ),
    ] = None,
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics on this address.", show_default="off"
        ),
    ] = "",
) -> int:
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
      mainstay worker shop.jobs:app --node rack-7 --label zone=a --label disk=ssd
    """
    orders = msgspec.structs.replace(
        process.worker_options(target, name=_worker_name(name), queues=_queues(queues)),
        node=check_short_name(node, field="node") if node else "",
        labels=_labels(labels or [], node=node),
    )
    process.configure()

    # before the first engine starts: its counters read the environment when they are imported
    with _metrics_server(metrics) as server:

        def ready(hello: Hello) -> None:
            if server is not None:
                server.watch(hello.store_url)
            if not process.json_logs:
                _banner(orders, hello, "" if server is None else server.url)

        return asyncio.run(Supervisor(orders, ready=ready).run())


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "worker")(run_worker)


def _worker_name(given: str) -> str:
    if not given:
        # with the pid: a machine may have several workers
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
        raise InvalidInput("queues", f"{given!r} contains an empty name; write the queues as mail,default")
    return names


def _labels(given: list[str], *, node: str) -> dict[str, str]:
    if given and not node:
        raise InvalidInput("label", f"{given[0]!r} is a label of a node; name the node with --node NAME")
    labels: dict[str, str] = {}
    for word in given:
        key, value = key_value(word, field="label")
        if labels.get(key, value) != value:
            raise InvalidInput("label", f"{key!r} is given twice, as {labels[key]!r} and {value!r}")
        labels[key] = value
    return check_labels(labels, field="label")


@contextlib.contextmanager
def _metrics_server(address: str) -> Iterator[MetricsServer | None]:
    if not address:
        yield None
        return
    from ..report.metrics import metrics_server  # noqa: PLC0415 - an extra

    with metrics_server(address) as server:
        yield server


def _shown_labels(labels: dict[str, str]) -> str:
    return f" ({', '.join(f'{key}={value}' for key, value in labels.items())})" if labels else ""


def _banner(orders: WorkerOptions, hello: Hello, metrics: str) -> None:
    concurrency = orders.concurrency or hello.settings.concurrency
    processes = (orders.processes if hello.queues else 0) + bool(orders.node)
    engines = f"{counted(processes, 'process', 'processes')} x {concurrency} jobs"
    lines = (
        f"worker {orders.name} (pid {os.getpid()}) runs {orders.target}",
        f"  store    {shown_url(hello.store_url)}",
        *([f"  node     {orders.node}{_shown_labels(orders.labels)}"] if orders.node else []),
        f"  queues   {', '.join(hello.queues) or 'none: the app has no tasks'}",
        f"  engines  {engines}",
        *([f"  metrics  {metrics}"] if metrics else []),
        f"  Ctrl-C   drains ({duration_text(orders.grace_s)}); twice: stops now",
    )
    console = stderr_console()
    for line in lines:
        console.print(line, markup=False)
    variable = os.environ.get("MAINSTAY_STORE", "")
    if variable and shown_url(variable) != shown_url(hello.store_url):
        warning = (
            f"MAINSTAY_STORE ({shown_url(variable)}) is not used: the app names its store; App() uses the variable"
        )
        console.print(f"  warning  {warning}", style="yellow", markup=False)
