"""`mainstay tokens`: who may use the HTTP API and the dashboard."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from ..clock import SystemClock, duration_text, seconds
from ..worker.state_folder import state_folder
from .command import command
from .common import JsonOption, aside, print_json, screen

if TYPE_CHECKING:
    from ..web.security.tokens import Token, Tokens

ENVIRON = "MAINSTAY_TOKENS"


group = typer.Typer(
    help="Manage tokens for the HTTP API and the dashboard.", no_args_is_help=True, rich_markup_mode="rich"
)

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
            metavar="read|submit|operate|admin",
            help="What the token allows; each scope includes those before it.",
            show_default="read",
        ),
    ] = None,
    expires: Annotated[
        str, typer.Option("--expires", metavar="30d", help="Lifetime of the token, such as 30d.", show_default="never")
    ] = "",
    file: FileOption = "",
    as_json: JsonOption = False,
) -> None:
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
    if as_json:
        print_json({**_data(token), "token": secret, "file": str(tokens.path)})
        return
    # alone on stdout, to be piped to wherever it is kept
    typer.echo(secret)
    until = f", for {duration_text(expires_s)}" if expires_s is not None else ""
    aside(f"token of {name}: may {' and '.join(token.scopes)}{until}. It is not shown again.", style="dim")
    aside(f"mainstay serve --tokens {tokens.path}", style="cyan")


@command(group, "list")
def list_tokens(file: FileOption = "", as_json: JsonOption = False) -> None:
    """List the tokens: owner, scopes and expiry. The tokens themselves are not stored.

    Exit codes: 0 fine, 2 error.

    [bold]Examples[/bold]

      mainstay tokens list
      mainstay tokens list --json | jq '.tokens[].name'
    """
    tokens = _tokens(file)
    found = tokens.list()
    if as_json:
        print_json({"file": str(tokens.path), "tokens": [_data(token) for token in found]})
        return
    console = screen()
    if not found:
        console.print("no tokens")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for title in ("name", "may", "made", "until"):
        table.add_column(title)
    now_ms = SystemClock().now_ms()
    for token in found:
        over = "" if token.valid_at(now_ms) else " (over)"
        until = "never" if token.expires_ms is None else f"{_day(token.expires_ms)}{over}"
        table.add_row(token.name, ", ".join(token.scopes), _day(token.created_ms), until)
    console.print(table)


@command(group, "revoke")
def revoke(name: NameArgument, file: FileOption = "", as_json: JsonOption = False) -> None:
    """Revoke a token: the server refuses it from the next request on, and ends its sign-ins.

    Exit codes: 0 done, 2 error, or no such token.

    [bold]Examples[/bold]

      mainstay tokens revoke ann
    """
    token = _tokens(file).revoke(name)
    if as_json:
        print_json(_data(token))
        return
    screen().print(f"token of {token.name} is revoked", markup=False)


def default_file() -> Path:
    """Where tokens are kept if nobody says where."""
    return state_folder("web") / "tokens.json"


def _tokens(file: str) -> Tokens:
    from ..web.security.tokens import Tokens  # noqa: PLC0415 - nothing of the HTTP side for the help

    return Tokens(Path(file) if file else default_file())


def _data(token: Token) -> dict[str, Any]:
    return {
        "name": token.name,
        "scopes": token.scopes,
        "created_ms": token.created_ms,
        "expires_ms": token.expires_ms,
    }


def _day(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d}"
