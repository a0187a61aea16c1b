"""One connection to a server: commands are sent at once, and the replies arrive in the same order.

Retries and other connections are in `connection.py`. The driver's own client would do, too, but takes several times as
long for a command, most of all after an idle time: and that is when a worker waits for a job.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis
from redis import exceptions as driver
from redis.asyncio.connection import DefaultParser

from .address import RedisAddress

_NOTHING = object()
_LOST = "the connection was lost"
#: how long closing may take
_CLOSE_S = 1.0


class RedisWire(asyncio.Protocol):
    """Made by `connect`. A lost connection is not restored.

    When a reply, or the next piece of one, takes longer than `patience_s`, the connection ends.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(
            protocolError=driver.InvalidResponse, replyError=DefaultParser.parse_error, notEnoughData=_NOTHING
        )
        self._pending: deque[asyncio.Future[Any]] = deque()
        """the replies that have not arrived yet, in order"""
        self._heard_s = 0.0
        """when data last arrived, or the first pending command was sent; of the loop's clock"""
        self._watch: asyncio.TimerHandle | None = None
        self._gone = asyncio.Event()
        self._retired = False

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._retired

    @property
    def waiting(self) -> int:
        """The number of pending replies."""
        return len(self._pending)

    async def ask(self, *command: str | bytes | float) -> Any:
        """Send a command. Returns the server's reply, as it is."""
        if self._transport is None:
            raise driver.ConnectionError(_LOST)
        reply = self._loop.create_future()
        packed = hiredis.pack_command(command)  # type: ignore[arg-type]  # its stub has tuples of one only
        if not self._pending:
            self._heard_s = self._loop.time()
        self._pending.append(reply)
        self._transport.write(packed)
        if self._watch is None:
            self._watch = self._loop.call_later(self._patience_s, self._check_silence)
        return await reply

    def retire(self) -> None:
        """Take no more commands, and end after the last reply."""
        self._retired = True
        if not self._pending and self._transport is not None:
            self._transport.close()

    async def close(self) -> None:
        """End it now. Pending commands fail."""
        transport = self._transport
        if transport is not None:
            transport.close()
        self._end(lambda: driver.ConnectionError(_LOST))
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._gone.wait()
        except TimeoutError:
            if transport is not None:  # the server reads no more: the unsent data would stay forever
                transport.abort()

    async def lost(self) -> None:
        """Wait until the connection has ended, on either side."""
        await self._gone.wait()

    # -- called by the loop -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _NOTHING:
                self._resolve(reply)
        except driver.InvalidResponse as error:  # the beginning of the next reply is unknown
            message = str(error)
            self._give_up(lambda: driver.ConnectionError(message))

    def connection_lost(self, error: Exception | None) -> None:
        message = _LOST if error is None else str(error) or _LOST
        self._end(lambda: driver.ConnectionError(message))
        self._gone.set()

    # -- internals ----------------------------------------------------------------------------

    def _resolve(self, reply: Any) -> None:
        if not self._pending:  # a server that refuses the connection sends the reason, and hangs up
            return
        future = self._pending.popleft()
        if not future.done():
            if isinstance(reply, Exception):
                future.set_exception(reply)
            else:
                future.set_result(reply)
        if self._retired and not self._pending and self._transport is not None:
            self._transport.close()

    def _check_silence(self) -> None:
        """End the connection if the server is silent."""
        self._watch = None
        if not self._pending:
            return
        left_s = self._heard_s + self._patience_s - self._loop.time()
        if left_s > 0:
            self._watch = self._loop.call_later(left_s, self._check_silence)
        else:
            self._give_up(lambda: driver.TimeoutError("no answer in time"))

    def _give_up(self, why: Callable[[], Exception]) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end(why)

    def _end(self, why: Callable[[], Exception]) -> None:
        self._transport = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        while self._pending:
            future = self._pending.popleft()
            if not future.done():
                future.set_exception(why())


async def connect(address: RedisAddress, place: tuple[str, int], *, patience_s: float) -> RedisWire:
    """A new connection to a server, ready for commands."""
    loop = asyncio.get_running_loop()

    def make() -> RedisWire:
        return RedisWire(patience_s)

    async with asyncio.timeout(address.connect_timeout_s):
        if address.path is not None:
            _, wire = await loop.create_unix_connection(make, address.path)
        else:
            tls = _tls(address) if address.tls else None
            transport, wire = await loop.create_connection(make, *place, ssl=tls)
            _keep_alive(transport)
    try:
        async with asyncio.timeout(max(patience_s, address.connect_timeout_s)):
            await _authenticate(wire, address)
    except BaseException:
        await wire.close()
        raise
    return wire


async def _authenticate(wire: RedisWire, address: RedisAddress) -> None:
    if address.username is not None or address.password is not None:
        user = () if address.username is None else (address.username,)
        await wire.ask("AUTH", *user, address.password or "")
    if address.db:
        await wire.ask("SELECT", address.db)


def _tls(address: RedisAddress) -> ssl.SSLContext:
    options = address.tls_options
    context = ssl.create_default_context()
    context.check_hostname = options["ssl_check_hostname"]
    if options.get("ssl_cert_reqs") == "none":
        context.verify_mode = ssl.CERT_NONE
    if "ssl_certfile" in options or "ssl_keyfile" in options:
        context.load_cert_chain(options.get("ssl_certfile", options.get("ssl_keyfile")), options.get("ssl_keyfile"))
    if "ssl_ca_certs" in options:
        context.load_verify_locations(options["ssl_ca_certs"])
    return context


def _keep_alive(transport: asyncio.BaseTransport) -> None:
    """Make the operating system detect a lost server, also while the connection is idle."""
    handle = transport.get_extra_info("socket")
    # on a copy: uvloop returns an object that is not a full socket
    with socket.socket(fileno=os.dup(handle.fileno())) as copy:
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
