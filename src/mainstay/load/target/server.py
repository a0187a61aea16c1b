"""The target server: opens and closes the ports."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ...errors import InvalidInput
from ...worker import port_errors, raise_open_files
from .certificate import self_signed, server_context
from .counts import Counts, Delays
from .echo import TcpEcho, UdpEcho
from .http1 import HTTP1ServerConnection
from .latency import DelayDistribution
from .options import TargetOptions
from .site import Site

#: a load test may open all its connections at the same time
BACKLOG = 8192


class TargetServer:
    """A server to test against, in the running loop.

    async with TargetServer(TargetOptions(latency="20ms", errors="2%")) as target:
        await http.get(target.url)
        assert target.counts().completed == 1
    """

    def __init__(self, options: TargetOptions | None = None) -> None:
        self.options = options or TargetOptions()
        self._stack = contextlib.AsyncExitStack()
        self._open: set[Any] = set()
        self.port = 0
        self.tcp_port = 0
        self.udp_port = 0
        self.certificate = ""
        """file of the certificate, which clients can be configured to trust"""

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def url(self) -> str:
        """Its URL, without a trailing slash."""
        return f"{'https' if self.options.secure else 'http'}://{self._place(self.port)}"

    @property
    def websocket_url(self) -> str:
        return f"{'wss' if self.options.secure else 'ws'}://{self._place(self.port)}/ws"

    @property
    def tcp_url(self) -> str:
        return f"{'tls' if self.options.secure else 'tcp'}://{self._place(self.tcp_port)}"

    @property
    def udp_url(self) -> str:
        return f"udp://{self._place(self.udp_port)}"

    @property
    def latency(self) -> DelayDistribution:
        return self._site.latency

    def counts(self) -> Counts:
        """Like `/stats`."""
        return self._site.counter.now()

    def delays(self) -> Delays:
        """The delays of delayed requests. Like `/stats/delays`."""
        return self._site.counter.delays

    def reset(self) -> None:
        """Count from zero. Like `/stats/reset`."""
        self._site.reset()

    def stall(self, duration_s: float) -> None:
        """Send no responses for this time. Like `/stall?for=2s`."""
        self._site.stall(duration_s)

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        loop = asyncio.get_running_loop()
        options = self.options
        self._site = site = Site(options, loop)
        stack.callback(site.timers.close)
        context = await self._context(stack)
        stack.callback(self._drop_connections)
        self.port = await self._listen(
            stack, lambda: HTTP1ServerConnection(site, self._open), options.port, context, field="port"
        )
        if options.tcp_port is not None:
            self.tcp_port = await self._listen(
                stack, lambda: TcpEcho(site, self._open), options.tcp_port, context, field="tcp_port"
            )
        if options.udp_port is not None:
            with port_errors(options.host, options.udp_port, field="udp_port"):
                transport, _ = await loop.create_datagram_endpoint(
                    lambda: UdpEcho(site), local_addr=(options.host, options.udp_port)
                )
            stack.callback(transport.close)
            self.udp_port = transport.get_extra_info("sockname")[1]

    async def _context(self, stack: contextlib.AsyncExitStack) -> ssl.SSLContext | None:
        options = self.options
        if options.key is not None and options.cert is None:
            raise InvalidInput("key", f"the key {options.key} needs its certificate; name it as well (cert)")
        if not options.secure:
            return None
        if options.cert is not None:
            self.certificate = options.cert
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mainstay-target-")))
            self.certificate = str(await self_signed(folder, options.host))
        return server_context(self.certificate, options.key)

    async def _listen(
        self,
        stack: contextlib.AsyncExitStack,
        make: Callable[[], asyncio.Protocol],
        port: int,
        context: ssl.SSLContext | None,
        *,
        field: str,
    ) -> int:
        loop = asyncio.get_running_loop()
        with port_errors(self.options.host, port, field=field):
            server = await loop.create_server(make, self.options.host, port, ssl=context, backlog=BACKLOG)
        stack.callback(server.close)
        actual: int = server.sockets[0].getsockname()[1]
        return actual

    def _drop_connections(self) -> None:
        for transport in list(self._open):
            transport.abort()

    def _place(self, port: int) -> str:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.options.host, self.options.host)  # noqa: S104  compared only
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def serve(
    options: TargetOptions,
    *,
    started: Callable[[TargetServer], None] = lambda _target: None,
    each_second: Callable[[TargetServer], None] | None = None,
) -> Counts:
    """Run a target until Ctrl-C or SIGTERM, and return its counts."""
    raise_open_files()

    async def until_told() -> Counts:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        async with TargetServer(options) as target:
            started(target)
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0 if each_second else None):
                        await stop.wait()
                if each_second is not None:
                    each_second(target)
            return target.counts()

    try:
        import uvloop  # noqa: PLC0415  there is none on Windows; asyncio does, more slowly
    except ModuleNotFoundError:
        return asyncio.run(until_told())
    return uvloop.run(until_told())
