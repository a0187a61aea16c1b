"""`self.client.http`: the HTTP/1.1 client of one virtual user."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Coroutine
from typing import Any, Unpack

from ....errors import CallFailed
from ...prepared import URL
from ...results import Opening
from ..call_limits import in_time, time_left, too_long
from ..network import Network
from .calls import HTTPCall
from .connect import open_socket
from .connection import HTTP1Connection
from .encoder import Encoder
from .methods import HTTPMethods
from .options import CallOptions
from .pool import LIMIT, Pool
from .redirects import add_redirect, next_parts
from .response import HTTPResponse
from .shared import SharedHTTPState

_now = time.perf_counter


class HTTPClient(HTTPMethods["asyncio.Future[HTTPResponse]"]):
    """A call returns when its response is complete, and raises `CallFailed` if there is none; a 503 is a response.
    Connections and cookies are kept, for this user only.

    A call starts at once and returns a future: `await` it, or several with `asyncio.gather`.

        r = await self.client.http.post(url, json={"user": "ann"}, timeout="5s")
        r.status, r.json()["token"], r.elapsed
    """

    __slots__ = ("_loop", "_pools", "_ready", "_shared", "_tasks")

    def __init__(self, network: Network, *, base_url: str = "") -> None:
        """`base_url`: the prefix of URLs without scheme and host."""
        self._loop = asyncio.get_running_loop()
        self._shared = network.keep(SharedHTTPState)
        super().__init__(network, Encoder(self._shared, base_url=base_url))
        self._ready = self._encoder.ready
        self._pools: dict[str, Pool] = {}
        self._tasks: set[asyncio.Task[HTTPResponse]] = set()

    def get(self, url: URL | str, **options: Unpack[CallOptions]) -> asyncio.Future[HTTPResponse]:
        # not a coroutine: one frame less per call
        started = _now()
        if not options and (ready := self._ready.get(url)) is not None:
            call, idle = ready
            if idle:
                return idle.pop().start(call, started)
            return self._task(self._perform(call, started))
        return self._launch("GET", url, options, started)

    async def close(self) -> None:
        """Close all connections; calls under way are aborted."""
        self._encoder.close()
        for pool in self._pools.values():
            pool.left = True
            for connection in tuple(pool.connections):
                connection.give_up()
        # aborted calls get to raise their error; calls that wait for a connection are cancelled
        await asyncio.sleep(0)
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # making calls

    def _launch(
        self, method: str, url: URL | str, options: CallOptions | dict[str, Any], started: float = 0.0
    ) -> asyncio.Future[HTTPResponse]:
        started = started or _now()
        call = self._encoder.call(method, url, options)
        origin = call.parts.origin
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = Pool(origin)
        if not options and method == "GET":
            self._encoder.keep_ready(url, call, pool.idle)
        if pool.idle:
            return pool.idle.pop().start(call, started)
        return self._task(self._perform(call, started))

    def _task(self, coroutine: Coroutine[Any, Any, HTTPResponse]) -> asyncio.Task[HTTPResponse]:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _perform(self, call: HTTPCall, started: float, *, fresh: bool = False) -> HTTPResponse:
        """Run a call that has no idle connection."""
        connection, opening = await self._connection(call, started, fresh=fresh)
        connection.opening = opening
        try:
            return await connection.start(call, started)
        except asyncio.CancelledError:
            if connection.call is call:
                connection.give_up()
            raise

    async def _connection(
        self, call: HTTPCall, started: float, *, fresh: bool
    ) -> tuple[HTTP1Connection, Opening | None]:
        """An idle connection, one that becomes free, or a new one."""
        origin = call.parts.origin
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = Pool(origin)
        if pool.idle and not fresh:
            return pool.idle.pop(), None
        blocked = 0.0
        while pool.open >= LIMIT:
            since = _now()
            connection = await self._freed(call, started, pool)
            blocked += _now() - since
            if connection is not None and not connection.closed:
                return connection, Opening(blocked, 0.0, 0.0)
        pool.open += 1
        try:
            sock, opening = await self._opened(call, started, pool)
            connection = HTTP1Connection(sock, pool=pool, owner=self, shared=self._shared)
        except BaseException:
            pool.give_back()
            raise
        return connection, opening._replace(blocked=blocked)

    async def _freed(self, call: HTTPCall, started: float, pool: Pool) -> HTTP1Connection | None:
        for connection in tuple(pool.connections):
            connection.drop_unwanted()
        if pool.open < LIMIT:
            return None
        async with in_time(call.limits, started, call.what):
            return await pool.wait()

    async def _opened(self, call: HTTPCall, started: float, pool: Pool) -> tuple[socket.socket, Opening]:
        connect, left = call.limits.connect, time_left(call.limits, started)
        shorter = connect if left is None or (connect is not None and connect < left) else left
        proxy = None if call.parts.unix is not None else self._shared.proxy
        known = pool.take_tls()
        try:
            async with asyncio.timeout(shorter):
                return await open_socket(self._network, call.parts, proxy=proxy, session=known)
        except TimeoutError:
            if shorter == connect:
                raise too_long("connect", connect or 0.0, call.what) from None
            raise too_long("total", call.limits.total or 0.0, call.what) from None

    # callbacks of connections

    def settle(self, call: HTTPCall, response: HTTPResponse, waiter: asyncio.Future[HTTPResponse]) -> None:
        """A response that sets cookies, redirects, or is a stream."""
        head = response._head  # noqa: SLF001 - the session and its answers are one part
        if head.cookies:
            self._encoder.take_cookies(head.cookies, call.parts)
        if head.location is None or call.redirects == 0:
            waiter.set_result(response)
        else:
            self._go_on(self._follow(call, response, head.location), waiter)

    def again(self, call: HTTPCall, started: float, waiter: asyncio.Future[HTTPResponse], *, sent: int) -> None:
        self._go_on(self._repeat(call, started, sent), waiter)

    async def _repeat(self, call: HTTPCall, started: float, sent: int) -> HTTPResponse:
        try:
            response = await self._perform(call, started, fresh=True)
        except CallFailed as error:
            error.sent += sent
            raise
        response.sent += sent
        return response

    async def _follow(self, call: HTTPCall, answer: HTTPResponse, location: str) -> HTTPResponse:
        parts = next_parts(call, location)
        try:
            response = await self._perform(self._encoder.next_call(call, answer.status, parts), answer.started)
        except CallFailed as error:
            error.sent += answer.sent
            error.received += answer.received
            raise
        add_redirect(response, answer)
        return response

    def _go_on(self, coroutine: Coroutine[Any, Any, HTTPResponse], waiter: asyncio.Future[HTTPResponse]) -> None:
        """Continue a call with another request; its caller waits for the result of both."""
        task = self._task(coroutine)

        def over(done: asyncio.Task[HTTPResponse]) -> None:
            if waiter.done():
                if not done.cancelled():
                    done.exception()
            elif done.cancelled():
                waiter.cancel()
            elif (error := done.exception()) is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(done.result())

        def not_wanted(future: asyncio.Future[HTTPResponse]) -> None:
            if future.cancelled():
                task.cancel()

        task.add_done_callback(over)
        waiter.add_done_callback(not_wanted)
