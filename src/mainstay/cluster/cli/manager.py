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

from ...bundles import MB, BundleLimits
from ...cli import AccessOptions, TlsOptions, command, stderr_console, web_options
from ...control import check_short_name
from ...errors import InvalidInput
from ...event_loop import new_event_loop
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
    name: Annotated[
        str,
        typer.Option(
            "--name", help="Name of the manager.", show_default="that of its certificate; without one HOST-PID"
        ),
    ] = "",
    certs: Annotated[
        str,
        typer.Option(
            "--certs",
            metavar="DIR",
            help="Folder with the certificates of nodes (node-*.pem, without keys), which name the queues that each "
            "may claim from. It is read again when it changes.",
            show_default="the folder of its own certificate; without TLS all queues",
        ),
    ] = "",
    state: Annotated[
        str, typer.Option("--state", metavar="DIR", help="Folder of its journal.", show_default="in memory")
    ] = "",
    blobs: Annotated[
        str,
        typer.Option(
            "--blobs",
            envvar="MAINSTAY_CLUSTER_BLOBS",
            metavar="URL",
            help="Storage of bundles, the same for all managers: file:///srv/blobs, s3://bucket/prefix.",
            show_default="no bundles",
        ),
    ] = "",
    bundle_code_mb: Annotated[
        int, typer.Option("--bundle-code-mb", min=1, help="Largest code of one bundle, in MB.")
    ] = 50,
    bundle_data_mb: Annotated[
        int, typer.Option("--bundle-data-mb", min=0, help="Largest data of one bundle, in MB.")
    ] = 4096,
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
    machines; any of them answers, and another one leads within seconds when the leader ends. It waits for a bus that is
    not there yet, and names in its log which servers failed and why.

    --serve follows the rules of `mainstay serve`: without --tokens only this machine can reach it, and every local user
    may do everything; other machines need tokens, and TLS or --insecure.

    Exit codes: 0 stopped cleanly, 2 could not start.

    [bold]Examples[/bold]

      mainstay manager 'tls://bus-0:4222,bus-1:4222?ca=ca.pem&cert=manager-m1.pem&key=manager-m1.key' --store postgresql://db/shop
      mainstay manager nats://manager:SECRET@127.0.0.1:4222/shop --store postgresql://db/shop
      mainstay manager nats://manager:SECRET@127.0.0.1:4222/shop --store postgresql://db/shop --serve 8330
      mainstay manager URL --store postgresql://db/shop --blobs s3://shop-bundles
    """
    address = parse_address(url)
    host = _NOT_IN_A_NAME.sub("-", socket.gethostname())[:40] or "manager"
    own = check_short_name(address.name("manager", name, default=f"{host}-{os.getpid()}"), field="name")
    if "." in own:
        raise InvalidInput("name", f"{own!r} contains a dot, which separates the words of a subject")
    config = ManagerConfig(
        url=url,
        store=store,
        name=own,
        certs=certs,
        state=state,
        blobs=blobs,
        bundle_limits=BundleLimits(code_bytes=bundle_code_mb * MB, data_bytes=bundle_data_mb * MB),
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

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(run_manager(config, ready=ready, beside=beside))


def _server(address: str, tls: TlsOptions, access: AccessOptions) -> SideServer:
    with extra_needed("mainstay manager --serve"):
        from ..web.side_server import SideServer, listen_address  # noqa: PLC0415 - an extra

        host, port = listen_address(address)
        return SideServer(web_options(host, port, tls, access))
