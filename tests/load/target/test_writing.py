"""Answers leave at once where that is possible, and whole and in their order where it is not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from mainstay.load.target.due_responses import at_once

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


async def connected() -> tuple[asyncio.Transport, socket.socket]:
    """A transport, and the other end of it, which nobody reads."""
    ours, theirs = socket.socketpair()
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    return transport, theirs


def test_it_is_there_before_the_loop_has_had_a_turn(run: Run) -> None:
    async def check() -> None:
        transport, theirs = await connected()
        with theirs:
            at_once(transport)(b"answer")
            assert theirs.recv(100, socket.MSG_DONTWAIT) == b"answer"
            transport.close()

    run(check())


def test_what_does_not_fit_follows_in_its_order(run: Run) -> None:
    async def check() -> None:
        transport, theirs = await connected()
        with theirs:
            write = at_once(transport)
            sent = [bytes([number]) * 300_000 for number in range(5)]
            for piece in sent:
                write(piece)
            assert transport.get_write_buffer_size() > 0
            transport.close()
            theirs.setblocking(False)
            heard = b""
            while more := await asyncio.get_running_loop().sock_recv(theirs, 1 << 20):
                heard += more
        assert heard == b"".join(sent)

    run(check())


def test_nothing_is_written_to_what_is_closing(run: Run) -> None:
    """By then, the number of the file may be another's."""

    async def check() -> None:
        transport, theirs = await connected()
        with theirs:
            write = at_once(transport)
            transport.abort()
            write(b"too late")
            theirs.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(theirs, 100) == b""

    run(check())


def test_an_end_that_is_gone_is_the_transports_to_notice(run: Run) -> None:
    async def check() -> None:
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        class Noticing(asyncio.Protocol):
            def connection_lost(self, exc: Exception | None) -> None:
                lost.set_result(None)

        ours, theirs = socket.socketpair()
        transport, _ = await asyncio.get_running_loop().create_connection(Noticing, sock=ours)
        theirs.close()
        at_once(transport)(b"to nobody")
        await asyncio.wait_for(lost, 60)

    run(check())
