"""`mainstay load ping`: make one call, and show where its time went."""

from __future__ import annotations

from typing import Annotated

import typer

from ...cli import CommandOutput
from ...cli.exits import DONE, NO
from ..extra import extra_needed
from .options import ConnectionOptions, PingOptions


async def ping(
    request: PingOptions,
    connection: ConnectionOptions,
    url: Annotated[str, typer.Argument(metavar="URL", help="URL to call.")],
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the response headers.")] = False,
    body: Annotated[bool, typer.Option("--body", "-b", help="Show the response body.")] = False,
) -> CommandOutput:
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
    with extra_needed("a ping"):
        from . import ping_view as view  # noqa: PLC0415 - an extra
        from .ping_call import make_call  # noqa: PLC0415 - the same
    reply = await make_call(url, request, connection)
    return CommandOutput(
        view.reply_data(reply, body=body),
        lambda console: view.show_reply(reply, console, headers=verbose, body=body),
        exit_code=NO if reply.refused else DONE,
    )
