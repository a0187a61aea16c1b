"""`mainstay node join`: run a node of a cluster in the foreground until a signal stops it."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ...bundles import MB, check_bundle_name, installed_digest, is_digest_start
from ...cli import ProcessOptions, command, key_value, stderr_console
from ...clock import seconds
from ...control import check_labels, check_short_name
from ...errors import InvalidInput
from ...worker import state_folder
from ..address import ClusterAddress, parse_address
from ..local_cluster_file import FOLDER, read_cluster_file
from ..node_bundle import BUNDLE_PREFIX
from ..node_config import NodeBundleOptions, NodeConfig
from ..node_parent import NodeParent

URL_VARIABLE = "MAINSTAY_CLUSTER_URL"
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def register(group: typer.Typer) -> None:
    """Add the command to `mainstay node`."""
    command(group, "join")(join)


def join(
    process: ProcessOptions,
    url: Annotated[
        str,
        typer.Argument(
            metavar="[URL]",
            help="URL of the cluster for a node. Default: MAINSTAY_CLUSTER_URL, otherwise the cluster that "
            "`mainstay cluster up` runs in --folder.",
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:APP|bundle:NAME",
            help="An installed app, or a bundle by its name or digest (bundle:4f1c09ae).",
        ),
    ] = "",
    name: Annotated[
        str,
        typer.Option(
            "--name", help="Name of the node.", show_default="that of its certificate; without one that of the host"
        ),
    ] = "",
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="A label, by which jobs select nodes. Repeatable."),
    ] = None,
    cores: Annotated[
        int, typer.Option("--cores", min=0, help="Cores that work may use; 0: all.", show_default="all")
    ] = 0,
    queues: Annotated[
        str,
        typer.Option(
            "--queues",
            "-q",
            metavar="A,B",
            help="Queues to take jobs from.",
            show_default="those of its certificate; without any all of the app",
        ),
    ] = "",
    cache: Annotated[
        str,
        typer.Option(
            "--cache",
            metavar="DIR",
            help="Folder of fetched bundles. The nodes of a machine may share it.",
            show_default="in MAINSTAY_STATE",
        ),
    ] = "",
    cache_mb: Annotated[
        int,
        typer.Option(
            "--cache-mb", min=0, help="Size of the cache in MB; above it, bundles not used lately are removed."
        ),
    ] = 2048,
    cache_age: Annotated[
        str, typer.Option("--cache-age", help="Remove bundles from the cache that were not used for this time.")
    ] = "30d",
    folder: Annotated[
        Path, typer.Option("--folder", metavar="DIR", help="Folder of a cluster that `mainstay cluster up` started.")
    ] = FOLDER,
    echo: Annotated[
        bool, typer.Option("--echo/--no-echo", help="Also print here what jobs print; it is kept in any case.")
    ] = True,
) -> int:
    """Join a cluster as a node: run the jobs of an app without access to the database, until Ctrl-C or SIGTERM.

    The first signal drains: running jobs have the grace period to finish. SIGHUP replaces the engines one by one, with
    the code that is installed now. If its worker is killed, the node reports it to the managers at once, and starts
    another. It waits for a bus or a manager that is not there yet.

    With bundle:NAME the node fetches the code that `mainstay cluster bundle push` published, checks every digest and
    runs it from its cache. When the name moves, a restart of the node takes the new bundle.

    Exit codes: 0 stopped cleanly, 1 an engine had to be killed, 2 could not start.

    [bold]Examples[/bold]

      mainstay node join shop:app
      mainstay node join 'tls://bus:4222?ca=ca.pem&cert=node-n7.pem&key=node-n7.key' shop:app --label zone=a
      mainstay node join URL bundle:shop
    """
    host = _NOT_IN_A_NAME.sub("-", socket.gethostname())[:40] or "node"
    if not target:
        url, target = _found(url, folder)
        if not os.environ.get(URL_VARIABLE):
            host = f"{host}-{os.getpid()}"  # it is not the only one of this machine
    address = parse_address(url)
    node = check_short_name(address.name("node", name, default=host), field="name")
    if "." in node:
        raise InvalidInput("name", f"{node!r} contains a dot, which separates the words of a subject")
    given = dict(key_value(word, field="label") for word in labels or [])
    wanted = tuple(dict.fromkeys(part.strip() for part in queues.split(","))) if queues else ()
    cache_folder = str(Path(cache).absolute() if cache else state_folder("bundles"))
    options = msgspec.structs.replace(
        process.worker_options(target, name=node, queues=_allowed(wanted, address)),
        node=node,
        labels=check_labels(given, field="label"),
        joined=True,
        cache=cache_folder,
        cache_bytes=cache_mb * MB,
        cache_age_s=seconds(cache_age, field="cache-age"),
        output=str(state_folder("output") / node),
        echo=echo,
    )
    process.configure()
    reference = target.removeprefix(BUNDLE_PREFIX)
    bundle = None
    if reference != target:
        bundle = NodeBundleOptions(
            reference=reference if is_digest_start(reference) else check_bundle_name(reference),
            cache=options.cache,
            cache_bytes=options.cache_bytes,
            cache_age_s=options.cache_age_s,
        )
    config = NodeConfig(
        url=url,
        options=options,
        incarnation="",
        parent=os.getpid(),
        cores=cores,
        digest="" if bundle else installed_digest(target),
        bundle=bundle,
    )
    stderr_console().print(f"node {node} joins {address.shown} with {target}", markup=False)
    return asyncio.run(NodeParent(config).run())


def _found(target: str, folder: Path) -> tuple[str, str]:
    """The URL for a command line that names only the app."""
    if "://" in target:
        raise InvalidInput("target", "the app is missing; write: mainstay node join URL MODULE:APP")
    if url := os.environ.get(URL_VARIABLE):
        return url, target
    try:
        return read_cluster_file(folder).node_url, target
    except FileNotFoundError:
        rule = (
            f"no cluster runs in {folder} on this machine, and {URL_VARIABLE} is not set; write: mainstay node join URL"
        )
        raise InvalidInput("url", f"{rule} {target}") from None


def _allowed(wanted: tuple[str, ...], address: ClusterAddress) -> tuple[str, ...]:
    """The queues to take jobs from; a claim that names another than the certificate would be refused as a whole."""
    certified = () if address.identity is None else address.identity.queues
    if foreign := [queue for queue in wanted if certified and queue not in certified]:
        raise InvalidInput("queues", f"{foreign[0]!r} is not in its certificate, which names {', '.join(certified)}")
    return wanted or certified
