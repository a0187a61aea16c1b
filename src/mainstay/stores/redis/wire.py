"""One connection to a server: commands go out as they come, and the answers come back in the same order.

It knows nothing of patience or of other connections (`connection.py`). The driver's own client would do, too, but takes
several times as long for a command, most of all when nothing happened for a while: and that is when somebody waits for
a job to begin.
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
#: how long a farewell may take
_FAREWELL_S = 1.0


class RedisWire(asyncio.Protocol):
    """Made by `connect`. One that was lost stays so.

    When an answer, or the next piece of one, takes longer than `patience_s`, the connection ends.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._answers = hiredis.Reader(
            protocolError=driver.InvalidResponse, replyError=DefaultParser.parse_error, notEnoughData=_NOTHING
        )
        self._asked: deque[asyncio.Future[Any]] = deque()
        self._heard_s = 0.0
        """when something came, or was asked while nothing else was; of the loop's clock"""
        self._watch: asyncio.TimerHandle | None = None
        self._gone = asyncio.Event()
        self._retired = False

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._retired

    @property
    def waiting(self) -> int:
        """How many answers have not come yet."""
        return len(self._asked)

    async def ask(self, *command: str | bytes | float) -> Any:
        """Send a command; what the server answered, as it is."""
        if self._transport is None:
            raise driver.ConnectionError(_LOST)
        answer = self._loop.create_future()
        packed = hiredis.pack_command(command)  # type: ignore[arg-type]  # its stub has tuples of one only
        if not self._asked:
            self._heard_s = self._loop.time()
        self._asked.append(answer)
        self._transport.write(packed)
        if self._watch is None:
            self._watch = self._loop.call_later(self._patience_s, self._look)
        return await answer

    def retire(self) -> None:
        """Take no more commands, and end when the last answer has come."""
        self._retired = True
        if not self._asked and self._transport is not None:
            self._transport.close()

    async def close(self) -> None:
        """End it now. Whoever waits for an answer gets none."""
        transport = self._transport
        if transport is not None:
            transport.close()
        self._end(lambda: driver.ConnectionError(_LOST))
        try:
            async with asyncio.timeout(_FAREWELL_S):
                await self._gone.wait()
        except TimeoutError:
            if transport is not None:  # the server takes nothing any more: what was to be sent would stay for ever
                transport.abort()

    async def lost(self) -> None:
        """Wait until the connection has ended, on either side."""
        await self._gone.wait()

    # -- of the loop --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        self._answers.feed(data)
        try:
            while (answer := self._answers.gets()) is not _NOTHING:
                self._answer(answer)
        except driver.InvalidResponse as error:  # nobody can tell where the next answer begins
            words = str(error)
            self._give_up(lambda: driver.ConnectionError(words))

    def connection_lost(self, error: Exception | None) -> None:
        words = _LOST if error is None else str(error) or _LOST
        self._end(lambda: driver.ConnectionError(words))
        self._gone.set()

    # -- internals ----------------------------------------------------------------------------

    def _answer(self, answer: Any) -> None:
        if not self._asked:  # what nobody asked for: a server that turns us away says why, and hangs up
            return
        asked = self._asked.popleft()
        if not asked.done():
            if isinstance(answer, Exception):
                asked.set_exception(answer)
            else:
                asked.set_result(answer)
        if self._retired and not self._asked and self._transport is not None:
            self._transport.close()

    def _look(self) -> None:
        """Whether the server is silent."""
        self._watch = None
        if not self._asked:
            return
        left_s = self._heard_s + self._patience_s - self._loop.time()
        if left_s > 0:
            self._watch = self._loop.call_later(left_s, self._look)
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
        while self._asked:
            asked = self._asked.popleft()
            if not asked.done():
                asked.set_exception(why())


async def connect(address: RedisAddress, place: tuple[str, int], *, patience_s: float) -> RedisWire:
    """A new connection to a server, ready for commands."""
    loop = asyncio.get_running_loop()

    def made() -> RedisWire:
        return RedisWire(patience_s)

    async with asyncio.timeout(address.connect_timeout_s):
        if address.path is not None:
            _, wire = await loop.create_unix_connection(made, address.path)
        else:
            tls = _tls(address) if address.tls else None
            transport, wire = await loop.create_connection(made, *place, ssl=tls)
            _keep_alive(transport)
    try:
        async with asyncio.timeout(max(patience_s, address.connect_timeout_s)):
            await _introduce(wire, address)
    except BaseException:
        await wire.close()
        raise
    return wire


async def _introduce(wire: RedisWire, address: RedisAddress) -> None:
    if address.username is not None or address.password is not None:
        who = () if address.username is None else (address.username,)
        await wire.ask("AUTH", *who, address.password or "")
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
    """Have the system notice that a server is cut off, also while nothing is asked."""
    handle = transport.get_extra_info("socket")
    # on a copy: what uvloop gives out is only a picture of a socket
    with socket.socket(fileno=os.dup(handle.fileno())) as copy:
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
