"""`mainstay cluster certs`: the certificates of a cluster that spans machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...cli import CommandOutput, command, command_group
from ..certs import identities, issue, make_authority, write_server_config

group = command_group("Make the certificates of a cluster, and the configuration of its bus.")

_Folder = Annotated[Path, typer.Option("--folder", metavar="DIR", help="Folder of the certificates.")]
FOLDER = Path("certs")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(group, "init")(init)
    command(group, "issue")(issue_certificate)
    command(group, "config")(config)
    app.add_typer(group, name="certs")


def init(
    name: Annotated[str, typer.Option("--name", help="Name of the cluster.")],
    environment: Annotated[str, typer.Option("--environment", help="Environment, such as staging.")] = "default",
    folder: _Folder = FOLDER,
) -> CommandOutput:
    """Make the authority of a cluster. Keep its key (ca.key) off the machines of the cluster.

    If the folder has an authority already, the new one is put before it, and certificates of both are accepted until
    you remove the old one from ca.pem: this is how an authority is replaced without a stop.

    Exit codes: 0 made, 2 error.

    [bold]Examples[/bold]

      mainstay cluster certs init --name shop
    """
    make_authority(folder, cluster=name, environment=environment)
    return CommandOutput({"folder": folder, "cluster": name}, f"authority of cluster {name} made in {folder}")


def issue_certificate(
    role: Annotated[str, typer.Argument(metavar="ROLE", help="manager, node, operator, or server (the bus).")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of its holder.")],
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", help="A queue that the node may claim from. Repeatable.", show_default="all"),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="A name or address of the server that clients connect to. Repeatable."),
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, help="How long it is valid.")] = 365,
    folder: _Folder = FOLDER,
) -> CommandOutput:
    """Make a certificate. Then write the configuration of the bus again (certs config), and reload its server.

    Exit codes: 0 made, 2 error.

    [bold]Examples[/bold]

      mainstay cluster certs issue server bus --host bus.internal
      mainstay cluster certs issue manager m1
      mainstay cluster certs issue node n7 --queue mail
      mainstay cluster certs issue operator ann
    """
    files = issue(folder, role, name, queues=queue or (), hosts=host or (), days=days)
    data = {"role": role, "name": name, "cert": files.cert, "key": files.key, "ca": files.ca}
    return CommandOutput(data, f"{role} {name}: {files.cert}, {files.key}")


def config(
    server: Annotated[str, typer.Option("--server", help="Name of the server's certificate.")],
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where the server listens.")] = (
        "0.0.0.0:4222"
    ),
    folder: _Folder = FOLDER,
) -> CommandOutput:
    """Write nats.conf: TLS, and one user with its own subjects for each certificate in the folder.

    Exit codes: 0 written, 2 error.

    [bold]Examples[/bold]

      mainstay cluster certs config --server bus
      nats-server -c certs/nats.conf
      nats-server --signal reload
    """
    path = write_server_config(folder, listen=listen, server=server)
    users = len(identities(folder))
    return CommandOutput(
        {"path": path, "users": users}, f"{path} written for {users} users; run: nats-server -c {path}"
    )
