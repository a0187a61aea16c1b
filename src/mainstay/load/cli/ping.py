"""`mainstay load ping`: one call, and where its time went."""

from __future__ import annotations

from typing import Annotated

import typer

from ...cli.command import command
from ...cli.common import JsonOption, print_json, screen
from ...cli.exits import NO
from ...cli.options import panel
from .requirements import load_needed

_call = panel("What is sent")
_way = panel("How it gets there")


def register(group: typer.Typer) -> None:
    """Add the command."""
    command(group, "ping")(ping)


def ping(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to.")],
    method: Annotated[
        str | None, _call("--method", "-X", help="GET, POST ...", show_default="GET; POST with --data")
    ] = None,
    header: Annotated[
        list[str] | None, _call("--header", "-H", metavar="NAME:VALUE", help="A header; may be repeated.")
    ] = None,
    data: Annotated[
        str | None,
        _call("--data", "-d", metavar="TEXT", help="What to send; @FILE reads it from a file, @- from stdin."),
    ] = None,
    http2: Annotated[bool, _way("--http2", help="HTTP/2, and nothing else.")] = False,
    redirects: Annotated[int, _way("--redirects", min=0, help="Follow so many at most.")] = 10,
    timeout: Annotated[str, _way("--timeout", "-t", metavar="TIME", help="For all of it.")] = "30s",
    insecure: Annotated[bool, _way("--insecure", "-k", help="Do not verify the certificate.")] = False,
    ca: Annotated[str | None, _way("--ca", metavar="FILE", help="Certificates to trust instead.")] = None,
    cert: Annotated[str | None, _way("--cert", metavar="FILE", help="Our certificate.")] = None,
    key: Annotated[str | None, _way("--key", metavar="FILE", help="The key of it.")] = None,
    proxy: Annotated[str | None, _way("--proxy", metavar="URL", help="http://host:port of a proxy.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the headers of the answer.")] = False,
    body: Annotated[bool, typer.Option("--body", "-b", help="Show the body of the answer.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make one call, and show where its time went. It uses the same clients as a load test: http, https, http+unix, ws,
    wss, tcp, tls and udp, by the scheme of the URL.

    With --data, ws, tcp, tls and udp send it and wait for one answer; without, they only connect (udp needs it).

    Exit codes: 0 an answer, 1 an answer with a status of 400 or more, 2 no answer.

    [bold]Examples[/bold]

      mainstay load ping http://127.0.0.1:8080/
      mainstay load ping https://shop.test/login -d '{"user": "ann"}' -H content-type:application/json -v --body
      mainstay load ping https://shop.test/ --http2 --insecure
      mainstay load ping ws://127.0.0.1:8080/ws --data hello --json
    """
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
