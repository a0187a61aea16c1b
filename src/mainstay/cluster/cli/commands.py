"""`mainstay cluster`: start a small cluster on this machine, see and check a cluster, drain a node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import typer

from ...cli import (
    CommandOutput,
    JsonOption,
    OptionGroup,
    command,
    command_group,
    exits,
    local_actor,
    panel,
    stderr_console,
)
from ...clock import seconds
from ...control.check import check
from ...errors import InvalidInput, MissingExtra, NoResponders
from ...stores import open_store
from ...web import extra_needed
from ...worker import logs
from ..address import ClusterAddress, parse_address
from ..cluster_service import ClusterClient
from ..local_cluster import LocalCluster, LocalClusterOptions
from ..local_cluster_file import FOLDER, LocalClusterFile, kill_process, read_cluster_file
from ..nats_server import find_nats_server
from ..operator import SHORT_CONNECT_S, connected_operator
from ..problems import problems_of
from . import certs, view
from .live_status import watch_status, whole_status

group = command_group("Start, see and operate a cluster of managers and nodes.")

#: the app of a cluster that is started without one
HELLO = "mainstay.cluster.hello:app"
_panel = panel("Cluster")


class ClusterOptions(OptionGroup, frozen=True, kw_only=True):
    """Which cluster a command works on."""

    url: Annotated[
        str,
        _panel(
            "--url",
            envvar="MAINSTAY_CLUSTER_URL",
            metavar="URL",
            help="URL of the cluster for an operator, such as tls://bus:4222/shop?ca=...&cert=...&key=...",
            show_default="the cluster that `mainstay cluster up` started in --folder",
        ),
    ] = ""
    folder: Annotated[
        Path, _panel("--folder", metavar="DIR", help="Folder of a cluster that `mainstay cluster up` started.")
    ] = FOLDER

    def address(self) -> ClusterAddress:
        """The address of the cluster; raises `InvalidInput` if there is none."""
        return parse_address(self.url) if self.url else parse_address(self.local().url)

    def local(self) -> LocalClusterFile:
        """The local cluster of the folder."""
        try:
            return read_cluster_file(self.folder)
        except FileNotFoundError:
            rule = f"no cluster runs in {self.folder}; start one (mainstay cluster up), or pass --url"
            raise InvalidInput("folder", rule) from None

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[ClusterClient]:
        """Ask the managers of the cluster."""
        address = self.address()
        async with connected_operator(address, timeout_s=None if self.url else SHORT_CONNECT_S) as client:
            try:
                yield client
            except NoResponders:
                rule = f"no manager answers on {address.shown}; start one: mainstay manager"
                raise InvalidInput("url", rule) from None


def register(app: typer.Typer) -> None:
    """Add the commands."""
    from . import bundle, routes  # noqa: PLC0415 - their commands have the options of this module

    command(group, "up")(up)
    command(group, "status")(status)
    command(group, "nodes")(nodes)
    command(group, "leaders")(leaders)
    command(group, "routes")(routes.routes)
    command(group, "drain")(drain)
    command(group, "check")(check_cluster)
    command(group, "kill")(kill)
    command(group, "bus")(run_bus)
    certs.register(group)
    bundle.register(group)
    app.add_typer(group, name="cluster")


def up(
    target: Annotated[
        str,
        typer.Argument(
            metavar="[MODULE:APP]", envvar="MAINSTAY_APP", help="The app of its nodes. Default: a small one to try."
        ),
    ] = HELLO,
    managers: Annotated[int, typer.Option("--managers", min=1, max=9, help="Number of managers.")] = 3,
    nodes: Annotated[int, typer.Option("--nodes", min=0, max=100, help="Number of nodes.")] = 1,
    store: Annotated[
        str, typer.Option("--store", "-s", metavar="URL", help="URL of its store.", show_default="SQLite in the folder")
    ] = "",
    folder: Annotated[Path, typer.Option("--folder", metavar="DIR", help="Folder of its files.")] = FOLDER,
    name: Annotated[str, typer.Option("--name", help="Name of the cluster.")] = "local",
    processes: Annotated[int, typer.Option("--processes", min=1, help="Engine processes of each node.")] = 1,
    cores: Annotated[
        int,
        typer.Option(
            "--cores",
            min=0,
            metavar="INT",
            help="Cores of each node for load tests, which run one process on each; 0: all of this machine.",
            show_default="all",
        ),
    ] = 0,
    port: Annotated[
        int,
        typer.Option("--port", "-p", min=0, max=65535, help="Port of the dashboard on loopback; 0 picks a free one."),
    ] = 0,
    dashboard: Annotated[
        bool, typer.Option("--dashboard/--no-dashboard", help="Serve the dashboard and the API.")
    ] = True,
    grace: Annotated[str, typer.Option("--grace", help="Time that running jobs have to finish at the end.")] = "10s",
    log_level: Annotated[str, typer.Option("--log-level", help="Level of the log.")] = "warning",
) -> int:
    """Start a small real cluster on this machine, until Ctrl-C: a bus, a store, managers and nodes as processes.

    The bus listens on loopback with random passwords. Other commands find the cluster through a file in its folder that
    only you can read. A process that ends is started again, except a drained node. Ctrl-C drains the nodes and ends all
    processes; a second one does not wait for running jobs.

    This command serves the dashboard, through any manager: as with `mainstay serve`, every user of this machine can use
    it.

    Exit codes: 0 stopped cleanly, 2 could not start.

    [bold]Examples[/bold]

      mainstay cluster up
      mainstay cluster up shop:app --managers 3 --nodes 2
      mainstay cluster up --nodes 4 --cores 1
      mainstay cluster up shop:app --store postgresql://localhost/shop
    """
    logs.configure(log_level, as_json=False)
    options = LocalClusterOptions(
        folder=folder.absolute(),
        target=target,
        managers=managers,
        nodes=nodes,
        store=store,
        cluster=name,
        processes=processes,
        cores=cores,
        grace_s=seconds(grace, field="grace"),
        log_level=log_level,
    )
    return asyncio.run(_run_up(options, folder, port if dashboard else None))


async def _run_up(options: LocalClusterOptions, folder: Path, port: int | None) -> int:
    console = stderr_console()

    def show(event: str, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal may be closed
            console.print(f"  {event:<9} {text}", markup=False)

    cluster = LocalCluster(options, progress=show)
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            cluster.hurry()
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    try:
        starting = asyncio.create_task(cluster.start())
        asked = asyncio.create_task(stopping.wait())
        await asyncio.wait([starting, asked], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
            return exits.DONE
        started = starting.result()
        async with _dashboard(parse_address(started.url), folder, port) as served:
            for line in _banner(options, started, folder, served):
                console.print(line, markup=False)
            await asked
        return exits.DONE
    finally:
        if stopping.is_set():
            show("stopping", "the nodes finish what they run; again to stop now")
        await cluster.stop()


@contextlib.asynccontextmanager
async def _dashboard(address: ClusterAddress, folder: Path, port: int | None) -> AsyncIterator[str]:
    """Serve the dashboard in this process, so that it outlives each manager; its URL, or what to do to have one."""
    if port is None:
        yield f"mainstay serve --cluster {folder}"
        return
    try:
        with extra_needed("the dashboard"):
            from ...web import WebOptions  # noqa: PLC0415 - an extra
            from ..web.side_server import SideServer  # noqa: PLC0415 - an extra
            from ..web.sources import watched_cluster  # noqa: PLC0415 - an extra
    except MissingExtra as error:
        yield str(error)
        return
    server = SideServer(WebOptions(port=port))
    store = address.store_url("operator")
    async with server.running({"default": store}, lambda: watched_cluster(address)):
        yield f"{server.url}/cluster"


def _banner(options: LocalClusterOptions, started: LocalClusterFile, folder: Path, dashboard: str) -> list[str]:
    where = "" if folder == FOLDER else f" --folder {folder}"
    return [
        f"cluster {started.cluster} is up and runs {options.target}",
        f"  store      {started.store}",
        f"  dashboard  {dashboard}",
        f"  see it     mainstay cluster status{where}",
        *([f"  submit     mainstay submit hello name=you --store {started.store}"] if options.target == HELLO else []),
        f"  try        mainstay cluster kill n1{where}",
        f"  join       mainstay node join {options.target}{where}   (one more node, in another terminal)",
        "  machines   other machines need certificates: see mainstay cluster certs --help",
        "  Ctrl-C     drains the nodes and stops",
    ]


async def status(
    cluster: ClusterOptions,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it live until Ctrl-C; with --json a line each time.")
    ] = False,
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="Time between two looks of --watch.")] = "1s",
    as_json: JsonOption = False,
) -> CommandOutput | int:
    """Show a cluster: its managers, nodes, leaders, alarms and what happened lately; the cores of each node with
    the runs that hold them, and the runs that wait for cores, with the reason.

    Cores: held by runs of load tests, of all.

    Exit codes: 0 fine, 2 error (no manager answers).

    [bold]Examples[/bold]

      mainstay cluster status
      mainstay cluster status --watch
      mainstay cluster status --json | jq '.nodes[].name'
      mainstay cluster status --json | jq '.cores.waiting[] | {name, place, reason}'
    """
    async with cluster.client() as client:
        if watch:
            await watch_status(client, every_s=seconds(every, field="every"), as_json=as_json)
            return exits.DONE
        found = await whole_status(client)
    return CommandOutput(found.data(), lambda console: view.show_status(found.status, console, found.cores))


async def nodes(cluster: ClusterOptions) -> CommandOutput:
    """List the nodes of a cluster with their state, load, cores and work.

    States: active; away (silent for 10 s: it gets no new work); draining; closed (its work was taken back).

    Exit codes: 0 fine, 2 error.

    [bold]Examples[/bold]

      mainstay cluster nodes
    """
    async with cluster.client() as client:
        found = await client.status()
    return CommandOutput({"nodes": found.nodes}, lambda console: view.show_nodes(found, console))


async def leaders(cluster: ClusterOptions) -> CommandOutput:
    """Show which manager holds each lead, and in which epoch.

    Exit codes: 0 fine, 2 error.

    [bold]Examples[/bold]

      mainstay cluster leaders
    """
    async with cluster.client() as client:
        found = await client.status()
    return CommandOutput({"leads": found.leads}, lambda console: view.show_leaders(found, console))


async def drain(
    cluster: ClusterOptions, node: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")]
) -> CommandOutput:
    """Ask a node to finish what it runs, take no more work, and end.

    Exit codes: 0 asked, 2 error (no such node).

    [bold]Examples[/bold]

      mainstay cluster drain n1
    """
    async with cluster.client() as client:
        if not await client.drain(node, by=local_actor()):
            known = ", ".join(each.name for each in (await client.status()).nodes) or "none"
            raise InvalidInput("node", f"{node!r} is not a node of this cluster (its nodes: {known})")
    return CommandOutput({"node": node, "draining": True}, f"node {node} drains")


async def check_cluster(cluster: ClusterOptions) -> CommandOutput:
    """Check a cluster: its managers, leads and nodes, and every row of its store.

    Exit codes: 0 clean, 1 something was found, 2 error.

    [bold]Examples[/bold]

      mainstay cluster check
    """
    address = cluster.address()
    async with cluster.client() as client:
        found = await client.status()
    problems = problems_of(found)
    store = await open_store(address.store_url("operator"))
    try:
        report = await check(store)
    finally:
        await store.close()
    problems += [each.message for each in report.remaining]
    data = {"clean": not problems, "problems": problems, "rows": report.checked}
    text = "\n".join(problems) if problems else f"clean; {report.checked} rows checked"
    return CommandOutput(data, text, exit_code=exits.NO if problems else exits.DONE)


def kill(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A process of the cluster: n1, m1 or nats.")],
    folder: Annotated[Path, typer.Option("--folder", metavar="DIR", help="Folder of the cluster.")] = FOLDER,
) -> CommandOutput:
    """Kill a process of a cluster that `mainstay cluster up` started, without warning, to see what happens.

    `mainstay cluster up` starts it again after a moment.

    Exit codes: 0 killed, 2 error (no such process).

    [bold]Examples[/bold]

      mainstay cluster kill n1
      mainstay cluster kill m1
      mainstay cluster kill nats
    """
    killed = kill_process(folder, name)
    return CommandOutput(killed, f"killed {killed.role} {killed.name} (pid {killed.pid})")


def run_bus(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="Configuration, as `cluster certs config` writes it.")
    ],
) -> int:
    """Run a server of the bus until a signal stops it: the nats-server on the PATH, otherwise that of the extra.

    This process becomes nats-server. SIGHUP makes it read its configuration again.

    Exit codes: 0 stopped cleanly, 1 nats-server failed, 2 error (no such file, no nats-server).

    [bold]Examples[/bold]

      mainstay cluster bus certs/nats.conf
    """
    if not config.is_file():
        rule = f"there is no file {config}; write it with: mainstay cluster certs config --server NAME"
        raise InvalidInput("config", rule)
    program = find_nats_server()
    stderr_console().print(f"nats-server {program.version} ({program.source}) with {config}", markup=False)
    os.execv(program.path, [program.path, "-c", str(config)])  # noqa: S606 - found above
