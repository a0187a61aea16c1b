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
    from ..web.shelf import Shelf

_stores = panel("Which store")
_place = panel("Where it listens")
_who = panel("Who may do what")
_logs = panel("What it says")


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
            help="Which store; several have names. MAINSTAY_STORE stands in for it.",
        ),
    ] = None,
    app: Annotated[
        str,
        _stores(
            "--app", "-a", metavar="MODULE:APP", help="Which app; its store is used. MAINSTAY_APP stands in for it."
        ),
    ] = "",
    host: Annotated[str, _place("--host", help="Which address.")] = "127.0.0.1",
    port: Annotated[int, _place("--port", "-p", min=0, max=65535, help="0: any that is free.")] = 8330,
    tls_cert: Annotated[str | None, _place("--tls-cert", metavar="FILE", help="HTTPS.")] = None,
    tls_key: Annotated[
        str | None, _place("--tls-key", metavar="FILE", help="The key, if it is not in the same file.")
    ] = None,
    insecure: Annotated[bool, _place("--insecure", help="Something in front of it does TLS.")] = False,
    browser: Annotated[bool, _place("--open", help="Open the dashboard in a browser.")] = False,
    tokens: Annotated[
        str,
        _who(
            "--tokens",
            metavar="FILE",
            envvar=ENVIRON,
            help="Whoever asks has to show one of these.",
            show_default="nobody has to",
        ),
    ] = "",
    read_only: Annotated[bool, _who("--read-only", help="Change nothing.")] = False,
    mask: Annotated[
        list[str] | None,
        _who(
            "--mask",
            metavar="FIELD",
            help="Show this field of payloads as ***, besides those named like a password, secret, token or key.",
        ),
    ] = None,
    no_payloads: Annotated[
        bool, _who("--no-payloads", help="Show no payloads, results and parameters, and no error texts.")
    ] = False,
    rate: Annotated[float, _who("--rate", min=0, help="Requests a second of one caller; 0: all.")] = 200.0,
    log_level: Annotated[
        str, _logs("--log-level", metavar="|".join(logs.LEVELS), help="The least that is logged.")
    ] = "info",
    json_logs: Annotated[bool, _logs("--json-logs", help="Log JSON, an object a line.")] = False,
    alerts: Annotated[bool, _logs("--alerts", help="Print alert rules for Prometheus, and serve nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve the HTTP API and the dashboard of one or more stores, until Ctrl-C or SIGTERM.

    Only this machine can reach it, and everybody on it may do everything, unless --tokens names a file of tokens. For
    other machines (--host 0.0.0.0) it needs tokens, and TLS; --insecure says that something in front of it does TLS.

    The first signal takes no more requests, ends the live streams and lets answers be finished; the second ends all.

    Exit codes: 0 stopped in good order, 2 could not start.

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
        from ..web.serving import run  # noqa: PLC0415 - the same
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

    def ready(url: str, shelf: Shelf) -> None:
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


def _banner(url: str, shelf: Shelf, options: WebOptions) -> None:
    who = "whoever is on this machine" if options.tokens is None else f"whoever has a token of {options.tokens}"
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
