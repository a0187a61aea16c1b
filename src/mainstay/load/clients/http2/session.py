"""`self.client.http2`: the HTTP/2 client of one virtual user."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Coroutine
from typing import Any

from ....errors import CallFailed, InvalidInput
from ...prepared import URL
from ...results import Opening
from ..call_limits import PendingCall, in_time
from ..http.calls import HTTPCall
from ..http.encoder import Encoder
from ..http.methods import HTTPMethods
from ..http.options import CallOptions
from ..http.redirects import add_redirect, next_parts
from ..http.shared import SharedHTTPState
from ..network import Network
from .connection import HTTP2Connection
from .exchange import NotProcessed
from .response import HTTP2Response

_now = time.perf_counter
#: the most attempts for a call that the server does not process
_MOST_TRIES = 5
Calling = Coroutine[Any, Any, HTTP2Response]


class HTTP2Client(HTTPMethods[Calling]):
    """The calls and options are those of HTTP/1.1. A user has one connection to each origin, for all its calls.

    r = await self.client.http2.get("https://127.0.0.1:8443/")
    r.status, r.version, r.elapsed
    """

    def __init__(self, network: Network, *, base_url: str = "") -> None:
        super().__init__(network, Encoder(network.keep(SharedHTTPState), base_url=base_url))
        self._connections: dict[str, HTTP2Connection] = {}
        self._opening: dict[str, asyncio.Task[tuple[HTTP2Connection, Opening]]] = {}
        self._all: set[HTTP2Connection] = set()

    async def close(self) -> None:
        """Close all connections; calls under way are aborted."""
        self._encoder.close()
        for task in tuple(self._opening.values()):
            task.cancel()
        for connection in tuple(self._all):
            connection.close()
        self._connections.clear()
        self._all.clear()

    # making calls

    def _launch(self, method: str, url: URL | str, options: CallOptions | dict[str, Any]) -> Calling:
        return self._perform(self._encoder.call(method, url, options))

    async def _perform(self, call: HTTPCall, started: float = 0.0) -> HTTP2Response:
        started = started or _now()
        response = await self._sent(call, started)
        head = response._head  # noqa: SLF001 - the session and its answers are one part
        if head.cookies:
            self._encoder.take_cookies(head.cookies, call.parts)
        if head.location is None or call.redirects == 0:
            return response
        parts = next_parts(call, head.location)
        following = await self._perform(self._encoder.next_call(call, response.status, parts), started)
        add_redirect(following, response)
        return following

    async def _sent(self, call: HTTPCall, started: float) -> HTTP2Response:
        wasted = 0
        for attempt in itertools.count(1):
            try:
                connection, opening = await self._connection(call, started)
            except NotProcessed:  # the server closed the connection at once, without an error
                if attempt == _MOST_TRIES:
                    raise
                continue
            if self._network.lease.is_over():
                await self._network.lease.wait()
                continue  # the connection may have ended
            waiting = PendingCall(started=started, limits=call.limits, what=call.what)
            exchange = connection.start(call, waiting, opening)
            self._network.resent += wasted > 0
            try:
                response: HTTP2Response = await connection.watch.answer(waiting)
            except NotProcessed as error:
                wasted += exchange.sent
                if attempt == _MOST_TRIES or call.upload is not None:
                    raise error.of_call(wasted, exchange.received) from None
            except asyncio.CancelledError:
                connection.give_up(exchange)
                raise
            except CallFailed as error:
                connection.drop(exchange)
                raise error.of_call(exchange.sent + wasted, exchange.received) from None
            else:
                response.sent += wasted
                return response
        raise AssertionError("without end")

    async def _connection(self, call: HTTPCall, started: float) -> tuple[HTTP2Connection, Opening | None]:
        """The connection for a call; opened if there is none with a free stream."""
        connection = self._connections.get(call.parts.origin)
        if connection is not None and not connection.retired and not connection.full:
            return connection, None
        async with in_time(call.limits, started, call.what):
            return await self._wait_or_open(call)

    async def _wait_or_open(self, call: HTTPCall) -> tuple[HTTP2Connection, Opening | None]:
        origin = call.parts.origin
        since = _now()
        opened = Opening(0.0, 0.0, 0.0)
        made: HTTP2Connection | None = None
        while True:
            connection = self._connections.get(origin)
            if connection is not None and not connection.retired:
                if not connection.full:
                    return connection, opened._replace(blocked=max(0.0, _now() - since - sum(opened)))
                await connection.room()
                continue
            if connection is not None and connection is made:
                # the server closed the connection that this call opened, before the call was sent
                raise connection.failure()
            task = self._opening.get(origin)
            if task is not None:
                # another call opens it, and raises its error
                await asyncio.wait((task,))
                continue
            task = self._opening[origin] = asyncio.get_running_loop().create_task(self._open(call))
            # retrieved, in case this call is cancelled
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            # before this call continues, the connection may be closed, or full: check again
            made, opened = await asyncio.shield(task)

    async def _open(self, call: HTTPCall) -> tuple[HTTP2Connection, Opening]:
        parts = call.parts
        if self._network.proxy is not None and not parts.secure:
            raise InvalidInput("proxy", "HTTP/2 goes through a proxy with https:// only")
        try:
            connection = HTTP2Connection(self._network, parts)
            opening = await connection.open(call.limits)
            self._all = {one for one in self._all if not one.retired}
            self._all.add(connection)
            self._connections[parts.origin] = connection
            return connection, opening
        finally:
            del self._opening[parts.origin]
