"""`mainstay load ping`: one call, and where its time went."""

from __future__ import annotations

from typing import Annotated

import typer

from ...cli.bundles import bundled
from ...cli.common import JsonOption, print_json, reflowed, screen
from ...cli.exits import NO
from .requirements import load_needed

_CALL = "What is sent"
_WAY = "How it gets there"

_PING = reflowed("""
Make one call, and show where its time went. It uses the same clients as a load test: http, https, http+unix, ws, wss,
tcp, tls and udp, by the scheme of the URL.

With --data, ws, tcp, tls and udp send it and wait for one answer; without, they only connect (udp needs it).

Exit codes: 0 an answer, 1 an answer with a status of 400 or more, 2 no answer.

[bold]Examples[/bold]

  mainstay load ping http://127.0.0.1:8080/
  mainstay load ping https://shop.test/login -d '{"user": "ann"}' -H content-type:application/json -v --body
  mainstay load ping https://shop.test/ --http2 --insecure
  mainstay load ping ws://127.0.0.1:8080/ws --data hello --json
""")


def register(group: typer.Typer) -> None:
    """Add the command."""
    group.command(name="ping", help=_PING)(ping)


@bundled
def ping(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to.", show_default=False)],
    method: Annotated[
        str | None,
        typer.Option(
            "--method", "-X", help="GET, POST ...", show_default="GET; POST with --data", rich_help_panel=_CALL
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="NAME:VALUE",
            help="A header; may be repeated.",
            show_default=False,
            rich_help_panel=_CALL,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="TEXT",
            help="What to send; @FILE reads it from a file, @- from stdin.",
            show_default=False,
            rich_help_panel=_CALL,
        ),
    ] = None,
    http2: Annotated[bool, typer.Option("--http2", help="HTTP/2, and nothing else.", rich_help_panel=_WAY)] = False,
    redirects: Annotated[
        int, typer.Option("--redirects", min=0, help="Follow so many at most.", rich_help_panel=_WAY)
    ] = 10,
    timeout: Annotated[
        str, typer.Option("--timeout", "-t", metavar="TIME", help="For all of it.", rich_help_panel=_WAY)
    ] = "30s",
    insecure: Annotated[
        bool, typer.Option("--insecure", "-k", help="Do not verify the certificate.", rich_help_panel=_WAY)
    ] = False,
    ca: Annotated[
        str | None,
        typer.Option(
            "--ca", metavar="FILE", help="Certificates to trust instead.", show_default=False, rich_help_panel=_WAY
        ),
    ] = None,
    cert: Annotated[
        str | None,
        typer.Option("--cert", metavar="FILE", help="Our certificate.", show_default=False, rich_help_panel=_WAY),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="FILE", help="The key of it.", show_default=False, rich_help_panel=_WAY),
    ] = None,
    proxy: Annotated[
        str | None,
        typer.Option(
            "--proxy", metavar="URL", help="http://host:port of a proxy.", show_default=False, rich_help_panel=_WAY
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the headers of the answer.")] = False,
    body: Annotated[bool, typer.Option("--body", "-b", help="Show the body of the answer.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make one call."""
    with load_needed("a ping"):
        from . import ping_view as view  # noqa: PLC0415 - an extra
        from .ping_call import Wanted, pinged  # noqa: PLC0415 - the same
    answer = pinged(
        Wanted(
            url=url,
            method=method,
            headers=tuple(header or ()),
            data=data,
            http2=http2,
            redirects=redirects,
            timeout=timeout,
            verify=not insecure,
            ca=ca,
            cert=cert,
            key=key,
            proxy=proxy,
        )
    )
    if as_json:
        print_json(view.answer_data(answer, body=body))
    else:
        view.show_answer(answer, screen(), headers=verbose, body=body)
    if answer.refused:
        raise typer.Exit(NO)
