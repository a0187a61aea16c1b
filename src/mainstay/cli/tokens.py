"""`mainstay tokens`: tokens for the HTTP API and the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ..clock import SystemClock, duration_text, seconds
from ..worker import state_folder
from .commands import CommandOutput, command, command_group
from .common import aside
from .tables import empty_table

if TYPE_CHECKING:
    from ..web.security import Token, Tokens

ENVIRON = "MAINSTAY_TOKENS"

group = command_group("Manage tokens for the HTTP API and the dashboard.")

FileOption = Annotated[
    str,
    typer.Option(
        "--file",
        "-f",
        metavar="PATH",
        envvar=ENVIRON,
        help="File of tokens.",
        show_default="in your configuration folder",
    ),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token's owner.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="tokens")


@command(group, "add")
def add(
    name: NameArgument,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="read|submit|operate|admin|code",
            help="What the token allows. submit, operate and admin include those before them; code brings programs to "
            "nodes, and includes operate. Repeatable.",
            show_default="read",
        ),
    ] = None,
    expires: Annotated[
        str, typer.Option("--expires", metavar="30d", help="Lifetime of the token, such as 30d.", show_default="never")
    ] = "",
    file: FileOption = "",
) -> CommandOutput:
    """Create a token and print it once. Only its digest is stored, in a file that other users cannot read.

    Scopes: read; submit (also submits jobs); operate (also cancels, retries, pauses ...); admin (everything, also
    force, delete and purge). The audit trail names the token for each change. A running server reads the file at once.

    Exit codes: 0 done, 2 error.

    [bold]Examples[/bold]

      mainstay tokens add ann --scope operate
      mainstay tokens add ci --scope submit --expires 30d --file tokens.json
    """
    tokens = _tokens(file)
    expires_s = seconds(expires, field="expires") if expires else None
    secret = tokens.add(name, scope or ["read"], expires_s=expires_s)
    token = next(token for token in tokens.list() if token.name == name)

    def show(_: Console) -> None:
        # alone on stdout, so that it can be piped to its place
        typer.echo(secret)
        lifetime = f", for {duration_text(expires_s)}" if expires_s is not None else ""
        aside(f"token of {name}: may {' and '.join(token.scopes)}{lifetime}. It is not shown again.", style="dim")
        aside(f"mainstay serve --tokens {tokens.path}", style="cyan")

    return CommandOutput({**_data(token), "token": secret, "file": str(tokens.path)}, show)


@command(group, "list")
def list_tokens(file: FileOption = "") -> CommandOutput:
    """List the tokens: owner, scopes and expiry. The tokens themselves are not stored.

    Exit codes: 0 fine, 2 error.

    [bold]Examples[/bold]

      mainstay tokens list
      mainstay tokens list --json | jq '.tokens[].name'
    """
    tokens = _tokens(file)
    listed = tokens.list()
    data = {"file": str(tokens.path), "tokens": [_data(token) for token in listed]}
    return CommandOutput(data, lambda console: console.print(_table(listed) if listed else "no tokens"))


@command(group, "revoke")
def revoke(name: NameArgument, file: FileOption = "") -> CommandOutput:
    """Revoke a token: the server refuses it from the next request on, and ends its sign-ins.

    Exit codes: 0 done, 2 error, or no such token.

    [bold]Examples[/bold]

      mainstay tokens revoke ann
    """
    token = _tokens(file).revoke(name)
    return CommandOutput(_data(token), f"token of {token.name} is revoked")


def default_file() -> Path:
    """The file of tokens when no other is given."""
    return state_folder("web") / "tokens.json"


def _tokens(file: str) -> Tokens:
    from ..web.security import Tokens  # noqa: PLC0415 - the help does not need the HTTP side

    return Tokens(Path(file) if file else default_file())


def _table(tokens: Sequence[Token]) -> Table:
    now_ms = SystemClock().now_ms()
    table = empty_table("name", "may", "made", "until")
    for token in tokens:
        expired = "" if token.valid_at(now_ms) else " (expired)"
        until = "never" if token.expires_ms is None else f"{_day(token.expires_ms)}{expired}"
        table.add_row(token.name, ", ".join(token.scopes), _day(token.created_ms), until)
    return table


def _data(token: Token) -> dict[str, Any]:
    return {
        "name": token.name,
        "scopes": token.scopes,
        "created_ms": token.created_ms,
        "expires_ms": token.expires_ms,
    }


def _day(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d}"
