"""`mainstay cluster certs`: the certificates of a cluster that spans machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...cli import CommandOutput, command, command_group
from ..certs import identities, issue, make_authority, retire_authority, write_server_config

group = command_group("Make the certificates of a cluster, and the configuration of its bus.")

_Folder = Annotated[Path, typer.Option("--folder", metavar="DIR", help="Folder of the certificates.")]
FOLDER = Path("certs")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(group, "init")(init)
    command(group, "issue")(issue_certificate)
    command(group, "config")(config)
    command(group, "retire")(retire)
    app.add_typer(group, name="certs")


def init(
    name: Annotated[str, typer.Option("--name", help="Name of the cluster.")],
    environment: Annotated[str, typer.Option("--environment", help="Environment, such as staging.")] = "default",
    folder: _Folder = FOLDER,
) -> CommandOutput:
    """Make the authority of a cluster. Keep its key (ca.key) off the machines of the cluster.

    If the folder has an authority already, the new one is put before it, and certificates of both are accepted until
    you retire the old one (certs retire): this is how an authority is replaced without a stop. A folder is for one
    cluster and environment.

    Exit codes: 0 made, 2 error.

    [bold]Examples[/bold]

      mainstay cluster certs init --name shop
    """
    make_authority(folder, cluster=name, environment=environment)
    next_step = "mainstay cluster certs issue server bus --host NAME"
    text = f"authority of cluster {name} ({environment}) made in {folder}\nnext: {next_step}"
    return CommandOutput({"folder": folder, "cluster": name, "environment": environment}, text)


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
    """Make a certificate. Then write the configuration of the bus again (certs config), and reload its servers.

    Give its holder the two files and ca.pem. A certificate that is issued again replaces the one of that name; programs
    use it when they connect the next time.

    Exit codes: 0 made, 2 error.

    [bold]Examples[/bold]

      mainstay cluster certs issue server bus --host bus.internal
      mainstay cluster certs issue manager m1
      mainstay cluster certs issue node n7 --queue mail
      mainstay cluster certs issue operator ann
    """
    files = issue(folder, role, name, queues=queue or (), hosts=host or (), days=days)
    data = {"role": role, "name": name, "cert": files.cert, "key": files.key, "ca": files.ca}
    lines = [f"{role} {name}: {files.cert}, {files.key}"]
    if role != "server":
        lines.append(f"its URL: {files.url('HOST:4222')}")
    return CommandOutput(data, "\n".join(lines))


def config(
    server: Annotated[str, typer.Option("--server", help="Name of the server's certificate.")],
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where the server listens.")] = (
        "0.0.0.0:4222"
    ),
    route: Annotated[
        list[str] | None,
        typer.Option(
            "--route",
            metavar="HOST:PORT",
            help="Another server of the bus, or all of them, at its port for servers. Repeatable.",
            show_default="one server only",
        ),
    ] = None,
    route_listen: Annotated[
        str, typer.Option("--route-listen", metavar="HOST:PORT", help="Where the server listens for other servers.")
    ] = "0.0.0.0:6222",
    http: Annotated[
        str,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Where the server can be monitored, without TLS.",
            show_default="nowhere",
        ),
    ] = "",
    certs: Annotated[
        Path | None,
        typer.Option(
            "--certs",
            metavar="DIR",
            help="Folder of the certificates on the machine of the server.",
            show_default="--folder",
        ),
    ] = None,
    folder: _Folder = FOLDER,
) -> CommandOutput:
    """Write nats.conf: TLS, and one user with its own subjects for each certificate in the folder.

    Members whose certificate is not in the folder are refused. A server that runs reads its configuration again on
    SIGHUP.

    Exit codes: 0 written, 2 error.

    [bold]Examples[/bold]

      mainstay cluster certs config --server bus
      mainstay cluster bus certs/nats.conf
      mainstay cluster certs config --server bus --route bus-0:6222 --route bus-1:6222 --route bus-2:6222
    """
    path = write_server_config(
        folder, listen=listen, server=server, routes=route or (), routes_listen=route_listen, http=http, certs=certs
    )
    users = len(identities(folder))
    return CommandOutput(
        {"path": path, "users": users},
        f"{path} written for {users} members; run: mainstay cluster bus {path}\nif it runs: kill -HUP its process",
    )


def retire(folder: _Folder = FOLDER) -> CommandOutput:
    """Remove the authorities from ca.pem that were replaced. Then give ca.pem to all machines again.

    It is refused while a certificate in the folder is of an older authority.

    Exit codes: 0 removed, 2 error.

    [bold]Examples[/bold]

      mainstay cluster certs retire
    """
    checked = retire_authority(folder)
    return CommandOutput(
        {"folder": folder, "certificates": len(checked)},
        f"{folder / 'ca.pem'} has the newest authority only; {len(checked)} certificates are of it",
    )
