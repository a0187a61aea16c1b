"""`mainstay node join`: run a node of a cluster in the foreground until a signal stops it."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from typing import Annotated

import msgspec
import typer

from ...cli import ProcessOptions, command, key_value, stderr_console
from ...control import check_labels, check_short_name
from ...errors import InvalidInput
from ...worker import state_folder
from ..address import parse_address
from ..bundles import installed_digest
from ..node_parent import NodeParent
from ..node_worker import NodeConfig

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def register(group: typer.Typer) -> None:
    """Add the command to `mainstay node`."""
    command(group, "join")(join)


def join(
    process: ProcessOptions,
    url: Annotated[str, typer.Argument(metavar="URL", help="URL of the cluster for a node.")],
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="The app, as module:variable.")],
    name: Annotated[str, typer.Option("--name", help="Name of the node.", show_default="the name of the host")] = "",
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="A label, by which jobs select nodes. Repeatable."),
    ] = None,
    cores: Annotated[
        int, typer.Option("--cores", min=0, help="Cores that work may use; 0: all.", show_default="all")
    ] = 0,
    queues: Annotated[
        str,
        typer.Option("--queues", "-q", metavar="A,B", help="Queues to take jobs from.", show_default="all of the app"),
    ] = "",
    echo: Annotated[
        bool, typer.Option("--echo/--no-echo", help="Also print here what jobs print; it is kept in any case.")
    ] = True,
) -> int:
    """Join a cluster as a node: run the jobs of an app without access to the database, until Ctrl-C or SIGTERM.

    The first signal drains: running jobs have the grace period to finish. If its worker is killed, the node reports it
    to the managers at once, and starts another.

    Exit codes: 0 stopped cleanly, 1 an engine had to be killed, 2 could not start.

    [bold]Examples[/bold]

      mainstay node join nats://node:SECRET@127.0.0.1:4222/shop shop:app
      mainstay node join 'tls://bus:4222/shop?ca=ca.pem&cert=n7.pem&key=n7.key' shop:app --name n7 --label zone=a
    """
    parse_address(url)
    host = _NOT_IN_A_NAME.sub("-", socket.gethostname())[:60] or "node"
    node = check_short_name(name or host, field="name")
    if "." in node:
        raise InvalidInput("name", f"{node!r} contains a dot, which separates the words of a subject")
    given = dict(key_value(word, field="label") for word in labels or [])
    wanted = tuple(dict.fromkeys(part.strip() for part in queues.split(","))) if queues else ()
    options = msgspec.structs.replace(
        process.worker_options(target, name=node, queues=wanted),
        node=node,
        labels=check_labels(given, field="label"),
        joined=True,
        output=str(state_folder("output") / node),
        echo=echo,
    )
    process.configure()
    config = NodeConfig(
        url=url, options=options, incarnation="", parent=os.getpid(), cores=cores, digest=installed_digest(target)
    )
    stderr_console().print(f"node {node} joins {parse_address(url).shown} with {target}", markup=False)
    return asyncio.run(NodeParent(config).run())
