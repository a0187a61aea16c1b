"""`mainstay manager`: run a manager in the foreground until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from ...cli import AccessOptions, TlsOptions, command, stderr_console, web_options
from ...control import check_short_name
from ...stores import shown_url
from ...web import extra_needed
from ...worker import logs
from ..address import parse_address
from ..manager import Manager
from ..manager_program import ManagerConfig, run_manager

if TYPE_CHECKING:
    from ..web.side_server import SideServer

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "manager")(manager)


def manager(
    url: Annotated[
        str, typer.Argument(metavar="URL", envvar="MAINSTAY_CLUSTER_URL", help="URL of the cluster for a manager.")
    ],
    store: Annotated[
        str, typer.Option("--store", "-s", envvar="MAINSTAY_STORE", metavar="URL", help="URL of the store.")
    ],
    tls: TlsOptions,
    access: AccessOptions,
    name: Annotated[str, typer.Option("--name", help="Name of the manager.", show_default="HOST-PID")] = "",
    certs: Annotated[
        str,
        typer.Option(
            "--certs",
            metavar="DIR",
            help="Folder of the certificates: nodes claim only from the queues that theirs name.",
            show_default="all queues",
        ),
    ] = "",
    state: Annotated[
        str, typer.Option("--state", metavar="DIR", help="Folder of its journal.", show_default="in memory")
    ] = "",
    presence: Annotated[
        str,
        typer.Option(
            "--presence",
            envvar="MAINSTAY_CLUSTER_PRESENCE",
            metavar="URL",
            help="URL of the bus for its system account, which reports connections.",
            show_default="silence only",
        ),
    ] = "",
    serve: Annotated[
        str,
        typer.Option(
            "--serve",
            metavar="[HOST:]PORT",
            help="Also serve the HTTP API and the dashboard of its store and cluster here; port 0 picks a free one.",
            show_default="nothing",
        ),
    ] = "",
    log_level: Annotated[str, typer.Option("--log-level", help="Level of the log.")] = "info",
    json_logs: Annotated[bool, typer.Option("--json-logs", help="Log as JSON.")] = False,
) -> int:
    """Run a manager of a cluster until Ctrl-C or SIGTERM.

    It holds the store, answers nodes and operators over the bus, and competes for the leads. Run three on different
    machines; any of them answers, and another one leads within seconds when the leader ends.

    --serve follows the rules of `mainstay serve`: without --tokens only this machine can reach it, and every local user
    may do everything; other machines need tokens, and TLS or --insecure.

    Exit codes: 0 stopped cleanly, 2 could not start.

    [bold]Examples[/bold]

      mainstay manager nats://manager:SECRET@127.0.0.1:4222/shop --store postgresql://db/shop
      mainstay manager nats://manager:SECRET@127.0.0.1:4222/shop --store postgresql://db/shop --serve 8330
    """
    address = parse_address(url)
    host = _NOT_IN_A_NAME.sub("-", socket.gethostname())[:40] or "manager"
    config = ManagerConfig(
        url=url,
        store=store,
        name=check_short_name(name or f"{host}-{os.getpid()}", field="name"),
        certs=certs,
        state=state,
        presence=presence,
        log_level=log_level,
        json_logs=json_logs,
    )
    logs.configure(log_level, as_json=json_logs)
    server = _server(serve, tls, access) if serve else None

    def beside(running: Manager) -> AbstractAsyncContextManager[object]:
        if server is None:
            return contextlib.nullcontext()
        from ..web.sources import watched_manager  # noqa: PLC0415 - an extra

        return server.running({"default": store}, lambda: watched_manager(running))

    def ready() -> None:
        console = stderr_console()
        for line in (
            f"manager {config.name} (pid {os.getpid()}) of cluster {address.cluster}",
            f"  store    {shown_url(store)}",
            f"  bus      {address.shown}",
            *([] if server is None else [f"  serves   {server.url}"]),
            "  Ctrl-C   stops; another manager takes over",
        ):
            console.print(line, markup=False)

    return asyncio.run(run_manager(config, ready=ready, beside=beside))


def _server(address: str, tls: TlsOptions, access: AccessOptions) -> SideServer:
    with extra_needed("mainstay manager --serve"):
        from ..web.side_server import SideServer, listen_address  # noqa: PLC0415 - an extra

        host, port = listen_address(address)
        return SideServer(web_options(host, port, tls, access))
