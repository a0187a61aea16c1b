"""The HTTP server: checks of its options, start, and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import uvicorn

from ..errors import InvalidInput, MainstayError
from ..storage import report_exposed
from ..worker import port_errors, raise_open_files
from .cluster_source import ClusterSource
from .options import WebOptions
from .security.client_limits import ConnectionCounts
from .security.connection import connection_class
from .security.limits import ConnectionLimits
from .security.middleware import GuardedApp, wrapped
from .security.origin import is_loopback
from .security.tokens import Tokens
from .stores import ServedStores

_BACKLOG = 2048
_VANISHED_MS = 60_000
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared only

#: opens the cluster of a server
OpenCluster = Callable[[], AbstractAsyncContextManager[ClusterSource]]

log = logging.getLogger(__name__)


def check(options: WebOptions) -> None:
    """Refuse options that would expose the server to other machines without protection.

    >>> check(WebOptions(host="0.0.0.0", insecure=True))
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: tokens: other machines can reach 0.0.0.0, and ...
    """
    if options.tls_key is not None and options.tls_cert is None:
        raise InvalidInput("tls-cert", "there is a key but no certificate; pass --tls-cert FILE as well")
    if is_loopback(options.host):
        return
    if options.tls_cert is None and not options.insecure:
        raise InvalidInput(
            "host",
            f"other machines can reach {options.host}, and without TLS tokens and payloads can be read on the network; "
            "pass --tls-cert FILE and --tls-key FILE, or --insecure if a proxy in front of this server does TLS",
        )
    if options.tokens is None:
        raise InvalidInput(
            "tokens",
            f"other machines can reach {options.host}, and without tokens every client could do everything; "
            "run: mainstay tokens add NAME --scope admin, and pass --tokens FILE",
        )


def tls_context(options: WebOptions) -> ssl.SSLContext | None:
    """The TLS settings; None without a certificate."""
    if options.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # without this, OpenSSL would ask for a password on the terminal, and the server may have none
        context.load_cert_chain(options.tls_cert, options.tls_key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        files = " and ".join(name for name in (options.tls_cert, options.tls_key) if name)
        raise InvalidInput(
            "tls-cert", f"{files} cannot be used ({error.strerror or error}); both must be PEM, without a password"
        ) from None
    # without a key file, the certificate file contains the key
    key = options.tls_key or options.tls_cert
    report_exposed(f"the TLS key {key}", [Path(key)])
    context.set_alpn_protocols(["http/1.1"])
    return context


@contextlib.contextmanager
def bound(options: WebOptions) -> Iterator[socket.socket]:
    """The listening socket; raises `InvalidInput` if the port is in use."""
    with port_errors(options.host, options.port):
        family, kind, number, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, number)
    with made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # a client that vanished keeps its stream for this long, instead of the quarter of an hour after which the
            # system gives up; connections inherit it
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _VANISHED_MS)
        with port_errors(options.host, options.port):
            made.bind(address)
            made.listen(_BACKLOG)
        yield made


def url_of(options: WebOptions, bound_to: socket.socket) -> str:
    """The URL of the server, without a slash at the end."""
    host = _EVERYWHERE.get(options.host, options.host)
    address = f"[{host}]" if ":" in host else host
    return f"{'http' if options.tls_cert is None else 'https'}://{address}:{bound_to.getsockname()[1]}"


class WebServer(uvicorn.Server):
    """Uvicorn's server, with a callback for its start. Its caller handles signals."""

    def __init__(self, config: uvicorn.Config, app: GuardedApp, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._started = started
        self.running: asyncio.Task[None]
        """its task, when `serving` runs it"""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Take no more requests, end the streams, and finish the responses. The second call ends everything at once."""
        if self.should_exit:
            for connection in list(self.server_state.connections):
                transport: Any = connection.transport
                transport.abort()
            for task in list(self.server_state.tasks):
                task.cancel()
            return
        self.should_exit = True
        self._app.end_streams()


def make_server(
    app: GuardedApp,
    options: WebOptions,
    *,
    started: Callable[[], None] = lambda: None,
    limits: ConnectionLimits | None = None,
) -> WebServer:
    """A server for an app; `await server.serve(sockets=[...])` runs it until `server.stop()`."""
    limits = limits or app.limits
    most = limits.connections + options.streams
    # behind a proxy, all clients have the same address
    counts = ConnectionCounts(most, each=most if options.insecure else limits.connections_each)
    config = uvicorn.Config(
        app,
        http=connection_class(limits, counts),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        # only behind a proxy: otherwise any client could claim any address. A proxy is trusted if it is on this
        # machine, or listed in FORWARDED_ALLOW_IPS
        proxy_headers=options.insecure,
        timeout_keep_alive=limits.idle_s,
        timeout_graceful_shutdown=limits.grace_s,
        backlog=_BACKLOG,
    )
    config.load()
    config.ssl = tls_context(options)
    return WebServer(config, app, started)


async def serve(
    urls: Mapping[str, str],
    options: WebOptions,
    *,
    ready: Callable[[str, ServedStores], None] = lambda _url, _stores: None,
    cluster: OpenCluster | None = None,
) -> None:
    """Serve these stores, by name, until SIGINT or SIGTERM. `cluster` opens the cluster of the first one."""
    async with serving(urls, options, ready=ready, cluster=cluster) as server:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, server.stop)


@contextlib.asynccontextmanager
async def serving(
    urls: Mapping[str, str],
    options: WebOptions,
    *,
    ready: Callable[[str, ServedStores], None] = lambda _url, _stores: None,
    cluster: OpenCluster | None = None,
) -> AsyncIterator[WebServer]:
    """A server that runs beside other work of a program, which handles signals. The block that is left waits until the
    server has been stopped; one that is left by an error or is cancelled stops it."""
    from .site import make_site  # noqa: PLC0415 - imports all other parts

    check(options)
    tokens = None if options.tokens is None else Tokens.load(options.tokens)
    # we log the address ourselves, in the format of our other messages
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    # changes of limits are recorded nowhere else, so this log is on at every level
    logging.getLogger("mainstay.web.audit").setLevel(logging.INFO)
    with bound(options) as opened:
        async with contextlib.AsyncExitStack() as stack:
            source = None if cluster is None else await stack.enter_async_context(cluster())
            stores = await stack.enter_async_context(await ServedStores.open(urls))
            site = make_site(stores, options, tokens=tokens, cluster=source)
            app = wrapped(site, options, knows=site.state.site.guard.knows)
            server = make_server(app, options, started=lambda: ready(url_of(options, opened), stores))
            server.running = asyncio.create_task(_run(server, opened), name="mainstay server")
            try:
                yield server
            except BaseException:
                server.stop()
                await asyncio.wait([server.running])
                raise
            await server.running


async def _run(server: WebServer, opened: socket.socket) -> None:
    try:
        await server.serve(sockets=[opened])
    except SystemExit:
        # uvicorn exits like this if the app did not start, and has logged the reason
        raise MainstayError("the server could not start; see its log") from None


def run_server(
    urls: Mapping[str, str],
    options: WebOptions,
    *,
    ready: Callable[[str, ServedStores], None] = lambda _url, _stores: None,
    cluster: OpenCluster | None = None,
) -> None:
    """The same, on the fastest event loop that is installed."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform; asyncio works, more slowly

        make_loop: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
    except ModuleNotFoundError:
        make_loop = None
    raise_open_files()
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(serve(urls, options, ready=ready, cluster=cluster))


__all__ = [
    "OpenCluster",
    "WebServer",
    "bound",
    "check",
    "make_server",
    "run_server",
    "serve",
    "serving",
    "tls_context",
    "url_of",
]
