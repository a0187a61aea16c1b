"""`mainstay serve`: the HTTP API and the dashboard, in the foreground, until a signal stops it."""

from __future__ import annotations

import os
import re
import webbrowser
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ..errors import InvalidInput
from ..kinds import part
from .commands import command
from .common import JsonOption, print_line, stderr_console
from .options import LogOptions, OptionGroup, panel
from .target import Where, load_app
from .tokens import ENVIRON

if TYPE_CHECKING:
    from ..web import OpenCluster, ServedStores, WebOptions

_store = panel("Store")
_network = panel("Network")
_access = panel("Access")
_output = panel("Output")

#: the name of a store that is given without one
_DEFAULT = "default"
_NAMED = re.compile(r"([A-Za-z0-9._-]{1,64})=(.+)", re.DOTALL)


class ServedStoreOptions(OptionGroup, frozen=True, kw_only=True):
    """The stores to serve."""

    store: Annotated[
        list[str] | None,
        _store(
            "--store",
            "-s",
            metavar="[NAME=]URL",
            help="URL of a store; repeat it for several, each with a name. Default: MAINSTAY_STORE.",
        ),
    ] = None
    app: Annotated[
        str, _store("--app", "-a", metavar="MODULE:APP", help="App whose store to use. Default: MAINSTAY_APP.")
    ] = ""
    cluster: Annotated[
        str,
        _store(
            "--cluster",
            metavar="URL",
            help="URL of a cluster for an operator, or the folder of `mainstay cluster up`: adds its page, API and "
            "metrics. Without --store and --app, its store is served through its managers.",
        ),
    ] = ""


class TlsOptions(OptionGroup, frozen=True, kw_only=True):
    """The encryption of a server."""

    tls_cert: Annotated[
        str | None, _network("--tls-cert", metavar="FILE", help="Certificate (PEM); turns on HTTPS.")
    ] = None
    tls_key: Annotated[
        str | None,
        _network("--tls-key", metavar="FILE", help="Private key of the certificate, if it is in a file of its own."),
    ] = None
    insecure: Annotated[
        bool, _network("--insecure", help="Allow plain HTTP for other machines: a proxy in front does TLS.")
    ] = False


class NetworkOptions(TlsOptions, frozen=True, kw_only=True):
    """The address, and its encryption."""

    host: Annotated[str, _network("--host", help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, _network("--port", "-p", min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = (
        8330
    )
    browser: Annotated[bool, _network("--open", help="Open the dashboard in a browser.")] = False


class AccessOptions(OptionGroup, frozen=True, kw_only=True):
    """What clients may do and see."""

    tokens: Annotated[
        str,
        _access(
            "--tokens",
            metavar="FILE",
            envvar=ENVIRON,
            help="File of tokens; each request needs one of them.",
            show_default="no token is needed",
        ),
    ] = ""
    read_only: Annotated[bool, _access("--read-only", help="Refuse every request that changes something.")] = False
    mask: Annotated[
        list[str] | None,
        _access(
            "--mask",
            metavar="FIELD",
            help="Show this field of payloads as ***, besides those named like a password, secret, token or key.",
        ),
    ] = None
    no_payloads: Annotated[
        bool, _access("--no-payloads", help="Hide payloads, results, parameters and error texts.")
    ] = False
    rate: Annotated[float, _access("--rate", min=0, help="Requests a second allowed for one client; 0: no limit.")] = (
        200.0
    )


class ServeOutputOptions(LogOptions, frozen=True, kw_only=True):
    """What the server prints."""

    alerts: Annotated[bool, _output("--alerts", help="Print alert rules for Prometheus and exit.")] = False


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "serve")(serve)


def serve(
    served: ServedStoreOptions,
    network: NetworkOptions,
    access: AccessOptions,
    output: ServeOutputOptions,
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
      mainstay serve --cluster 'tls://bus:4222/shop?ca=ca.pem&cert=local.pem&key=local.key'
      mainstay serve --alerts > mainstay-alerts.yml
    """
    # the HTTP side is an extra, and other commands start without it
    from ..web import extra_needed  # noqa: PLC0415 - the help does not need the HTTP side
    from ..web.live import alert_rules  # noqa: PLC0415 - as above

    if output.alerts:
        typer.echo(alert_rules(), nl=False)
        return
    cluster = cluster_of(served.cluster) if served.cluster else None
    urls = stores(served.store or (), served.app) if cluster is None or served.store or served.app else cluster.stores
    output.configure()
    with extra_needed("mainstay serve"):
        from ..web import run_server  # noqa: PLC0415 - an extra
    options = web_options(network.host, network.port, network, access)

    def ready(url: str, stores: ServedStores) -> None:
        if as_json:
            print_line({"url": url, "stores": stores.urls})
        else:
            _banner(url, stores, options)
        if network.browser:
            webbrowser.open(url)

    run_server(urls, options, ready=ready, cluster=None if cluster is None else cluster.opened)


def web_options(host: str, port: int, tls: TlsOptions, access: AccessOptions) -> WebOptions:
    """The options of a server at this address."""
    from ..web import WebOptions  # noqa: PLC0415 - an extra

    return WebOptions(
        host=host,
        port=port,
        tls_cert=tls.tls_cert,
        tls_key=tls.tls_key,
        insecure=tls.insecure,
        tokens=access.tokens or None,
        read_only=access.read_only,
        masked=(*WebOptions().masked, *(access.mask or ())),
        show_payloads=not access.no_payloads,
        rate=access.rate,
    )


class ServedCluster(NamedTuple):
    """A cluster to serve: its store through its managers, by name, and what opens it."""

    stores: dict[str, str]
    opened: OpenCluster


def cluster_of(text: str) -> ServedCluster:
    """The cluster at a URL, or in a folder."""
    # by name: the cluster is a layer above
    address = part("mainstay.cluster.operator:operator_address")(text)
    store: str = part("mainstay.cluster.operator:operator_store")(text)
    return ServedCluster({_DEFAULT: store}, lambda: part("mainstay.cluster.web.sources:watched_cluster")(address))


def stores(given: Sequence[str], app: str) -> dict[str, str]:
    """URLs of stores by name: as typed, or the store of the app, or that of the environment.

    >>> stores(["shop=sqlite:///shop.db", "crm=redis://cache?db=1"], "")
    {'shop': 'sqlite:///shop.db', 'crm': 'redis://cache?db=1'}
    >>> stores(["sqlite:///jobs.db?busy_timeout=5s"], "")
    {'default': 'sqlite:///jobs.db?busy_timeout=5s'}
    """
    if not given:
        if app:
            return {_DEFAULT: load_app(app).store_url}
        environment = Where(store=os.environ.get("MAINSTAY_STORE", ""), app=os.environ.get("MAINSTAY_APP", ""))
        return {_DEFAULT: environment.target().url}
    urls: dict[str, str] = {}
    for text in given:
        match = _NAMED.fullmatch(text)
        name, url = (match[1], match[2]) if match else (_DEFAULT, text)
        if name in urls:
            rule = f"two stores are called {name!r}; give each a name of its own: --store shop=URL --store crm=URL"
            raise InvalidInput("store", rule)
        urls[name] = url
    return urls


def _banner(url: str, stores: ServedStores, options: WebOptions) -> None:
    users = "every user of this machine" if options.tokens is None else f"clients with a token of {options.tokens}"
    # the address alone on stdout, for scripts
    typer.echo(url)
    console = stderr_console()
    for line in (
        f"  stores   {', '.join(f'{name} ({url})' for name, url in stores.urls.items())}",
        f"  for      {users}{', to read' if options.read_only else ''}",
        "  Ctrl-C   stops",
    ):
        console.print(line, markup=False)
