"""`mainstay serve`: the HTTP API and the dashboard, in the foreground, until told to stop."""

from __future__ import annotations

import contextlib
import os
import re
import webbrowser
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ..errors import InvalidInput
from ..worker import logs
from .command import command
from .common import JsonOption, print_line
from .options import panel
from .target import Where, load
from .tokens import ENVIRON

if TYPE_CHECKING:
    from ..web.options import WebOptions
    from ..web.stores import ServedStores

_stores = panel("Store")
_place = panel("Network")
_who = panel("Access")
_logs = panel("Output")


#: of a store that was given no other
_ONLY = "default"
_NAMED = re.compile(r"([A-Za-z0-9._-]{1,64})=(.+)", re.DOTALL)


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "serve")(serve)


def serve(
    store: Annotated[
        list[str] | None,
        _stores(
            "--store",
            "-s",
            metavar="[NAME=]URL",
            help="URL of a store; repeat it for several, each with a name. Default: MAINSTAY_STORE.",
        ),
    ] = None,
    app: Annotated[
        str,
        _stores("--app", "-a", metavar="MODULE:APP", help="App whose store to use. Default: MAINSTAY_APP."),
    ] = "",
    host: Annotated[str, _place("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, _place("--port", "-p", min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = 8330,
    tls_cert: Annotated[
        str | None, _place("--tls-cert", metavar="FILE", help="Certificate (PEM); turns on HTTPS.")
    ] = None,
    tls_key: Annotated[
        str | None,
        _place("--tls-key", metavar="FILE", help="Private key of the certificate, if it is in a file of its own."),
    ] = None,
    insecure: Annotated[
        bool, _place("--insecure", help="Allow plain HTTP for other machines: a proxy in front does TLS.")
    ] = False,
    browser: Annotated[bool, _place("--open", help="Open the dashboard in a browser.")] = False,
    tokens: Annotated[
        str,
        _who(
            "--tokens",
            metavar="FILE",
            envvar=ENVIRON,
            help="File of tokens; each request needs one of them.",
            show_default="no token is needed",
        ),
    ] = "",
    read_only: Annotated[bool, _who("--read-only", help="Refuse every request that changes something.")] = False,
    mask: Annotated[
        list[str] | None,
        _who(
            "--mask",
            metavar="FIELD",
            help="Show this field of payloads as ***, besides those named like a password, secret, token or key.",
        ),
    ] = None,
    no_payloads: Annotated[
        bool, _who("--no-payloads", help="Hide payloads, results, parameters and error texts.")
    ] = False,
    rate: Annotated[
        float, _who("--rate", min=0, help="Requests a second allowed for one client; 0: no limit.")
    ] = 200.0,
    log_level: Annotated[
        str, _logs("--log-level", metavar="|".join(logs.LEVELS), help="Lowest level that is logged.")
    ] = "info",
    json_logs: Annotated[bool, _logs("--json-logs", help="Write logs as JSON, one object a line.")] = False,
    alerts: Annotated[bool, _logs("--alerts", help="Print alert rules for Prometheus and exit.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve the HTTP API and the dashboard of one or more stores, until Ctrl-C or SIGTERM.

    By default only this machine can reach the server, and every local user may do everything; --tokens restricts that.
    To serve other machines (--host 0.0.0.0), tokens and TLS are required; --insecure states that a proxy in front does
    TLS.

    On the first signal the server takes no more requests, ends the live streams and finishes the responses; on the
    second it stops at once.

    Exit codes: 0 stopped cleanly, 2 could not start.

    [bold]Examples[/bold]

      mainstay serve --store sqlite:///jobs.db --open
      mainstay serve --store shop=postgresql://db/shop --store crm=redis://cache
      mainstay serve --app shop.tasks:app --read-only --mask card_number
      mainstay serve --host 0.0.0.0 --tls-cert tls.pem --tokens tokens.json
      mainstay serve --alerts > mainstay-alerts.yml
    """
    if alerts:
        from ..web.live.alerts import alert_rules  # noqa: PLC0415 - the HTTP side, which most commands do without

        typer.echo(alert_rules(), nl=False)
        return
    urls = stores(store or (), app)
    logs.configure(log_level, as_json=json_logs)
    with _web_needed():
        from ..web.options import WebOptions  # noqa: PLC0415 - an extra
        from ..web.server import run  # noqa: PLC0415 - the same
    options = WebOptions(
        host=host,
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure=insecure,
        tokens=tokens or None,
        read_only=read_only,
        masked=(*WebOptions().masked, *(mask or ())),
        show_payloads=not no_payloads,
        rate=rate,
    )

    def ready(url: str, shelf: ServedStores) -> None:
        if as_json:
            print_line({"url": url, "stores": {place.name: place.url for place in shelf.places.values()}})
        else:
            _banner(url, shelf, options)
        if browser:
            webbrowser.open(url)

    run(urls, options, ready=ready)


def stores(given: Sequence[str], app: str) -> dict[str, str]:
    """Stores by name, as they were typed; or that of the app, or of the environment.

    >>> stores(["shop=sqlite:///shop.db", "crm=redis://cache?db=1"], "")
    {'shop': 'sqlite:///shop.db', 'crm': 'redis://cache?db=1'}
    >>> stores(["sqlite:///jobs.db?busy_timeout=5s"], "")
    {'default': 'sqlite:///jobs.db?busy_timeout=5s'}
    """
    if not given:
        if app:
            return {_ONLY: load(app).store_url}
        environ = Where(store=os.environ.get("MAINSTAY_STORE", ""), app=os.environ.get("MAINSTAY_APP", ""))
        return {_ONLY: environ.target().url}
    found: dict[str, str] = {}
    for text in given:
        named = _NAMED.fullmatch(text)
        name, url = (named[1], named[2]) if named else (_ONLY, text)
        if name in found:
            rule = f"two stores are called {name!r}; give each a name of its own: --store shop=URL --store crm=URL"
            raise InvalidInput("store", rule)
        found[name] = url
    return found


@contextlib.contextmanager
def _web_needed() -> Iterator[None]:
    from ..web.extra import extra_needed  # noqa: PLC0415 - the HTTP side itself

    with extra_needed("mainstay serve"):
        yield


def _banner(url: str, shelf: ServedStores, options: WebOptions) -> None:
    who = "every user of this machine" if options.tokens is None else f"clients with a token of {options.tokens}"
    rows: list[tuple[str, str]] = [
        ("stores", ", ".join(f"{place.name} ({place.url})" for place in shelf.places.values())),
        ("for", who + (", to read" if options.read_only else "")),
        ("Ctrl-C", "stops"),
    ]
    # the address alone on stdout, for scripts
    typer.echo(url)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for title, text in rows:
        console.print(f"  {title:<8} {text}", markup=False)


__all__ = ["register", "serve", "stores"]
