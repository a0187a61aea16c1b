"""`mainstay load ping`: one call, and where its time went."""

from __future__ import annotations

from typing import Annotated

import typer

from ...cli.command import command
from ...cli.common import JsonOption, print_json, screen
from ...cli.exits import NO
from ...cli.options import panel
from .requirements import load_needed

_call = panel("Request")
_way = panel("Connection")


def register(group: typer.Typer) -> None:
    """Add the command."""
    command(group, "ping")(ping)


def ping(
    url: Annotated[str, typer.Argument(metavar="URL", help="URL to call.")],
    method: Annotated[
        str | None, _call("--method", "-X", help="HTTP method.", show_default="GET; POST with --data")
    ] = None,
    header: Annotated[
        list[str] | None, _call("--header", "-H", metavar="NAME:VALUE", help="Header to send; may be repeated.")
    ] = None,
    data: Annotated[
        str | None,
        _call("--data", "-d", metavar="TEXT", help="Data to send; @FILE reads a file, @- reads stdin."),
    ] = None,
    http2: Annotated[bool, _way("--http2", help="Use HTTP/2 only.")] = False,
    redirects: Annotated[int, _way("--redirects", min=0, help="Redirects to follow, at most.")] = 10,
    timeout: Annotated[str, _way("--timeout", "-t", metavar="TIME", help="Time limit of the whole call.")] = "30s",
    insecure: Annotated[bool, _way("--insecure", "-k", help="Do not verify the server's certificate.")] = False,
    ca: Annotated[
        str | None, _way("--ca", metavar="FILE", help="CA certificates to trust (PEM), instead of the system's.")
    ] = None,
    cert: Annotated[str | None, _way("--cert", metavar="FILE", help="Client certificate (PEM).")] = None,
    key: Annotated[str | None, _way("--key", metavar="FILE", help="Private key of the client certificate.")] = None,
    proxy: Annotated[
        str | None, _way("--proxy", metavar="URL", help="Proxy to connect through: http://host:port.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the response headers.")] = False,
    body: Annotated[bool, typer.Option("--body", "-b", help="Show the response body.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make one call, and show where its time went. It uses the clients of load tests: http, https, http+unix, ws, wss,
    tcp, tls and udp, by the scheme of the URL.

    With --data, ws, tcp, tls and udp send it and wait for one response; without it they only connect (udp requires it).

    Exit codes: 0 a response, 1 a response with a status of 400 or more, 2 no response.

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
