"""Limits of calls are kept to the millisecond, and what comes after them is no answer: with every protocol."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvloop

from mainstay.errors import CallFailed
from mainstay.load.clients import call_limits, tcp, udp, websocket
from mainstay.load.clients.call_limits import PendingCall
from mainstay.load.clients.http import HTTPClient, connection, session, turns
from mainstay.load.clients.http2 import HTTP2Client, connection as connection2, session as session2
from mainstay.load.clients.network import Address, Network, Timeouts, system_lookup
from mainstay.load.target import TargetOptions, TargetServer

HTTPCall = Callable[[Timeouts | str], Awaitable[Any]]
CLIENTS: dict[str, Any] = {
    "http": HTTPClient,
    "http2": HTTP2Client,
    "websocket": websocket.WebsocketClient,
    "tcp": tcp.TCPClient,
    "udp": udp.UDPClient,
}
CLOCKS = [connection, connection2, session, session2, tcp, turns, udp, call_limits, websocket]


class Clock:
    """Can be put ahead of the loop's, as if nobody had had a turn for so long."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return time.perf_counter() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in CLOCKS:
        monkeypatch.setattr(module, "_now", made.now)
    return made


@contextlib.asynccontextmanager
async def calling(protocol: str, network: Network, target: TargetServer) -> AsyncIterator[HTTPCall]:
    """Gives a call that is answered after the target's latency."""
    client: Any = CLIENTS[protocol](network)
    calls: dict[str, HTTPCall] = {
        "http": lambda timeout: client.get(target.url, timeout=timeout),
        "http2": lambda timeout: client.get(target.url, timeout=timeout),
        "websocket": lambda timeout: client.send(target.websocket_url, "hello", timeout=timeout),
        "tcp": lambda timeout: client.bidirectional(target.tcp_url, b"hello", size=5, timeout=timeout),
        "udp": lambda timeout: client.bidirectional(target.udp_url, b"hello", timeout=timeout),
    }
    try:
        yield calls[protocol]
    finally:
        await client.close()


@pytest.fixture
async def target() -> AsyncIterator[TargetServer]:
    async with TargetServer(TargetOptions(tcp_port=0, udp_port=0)) as target:
        yield target


@pytest.mark.parametrize("kind", ["total", "read"])
@pytest.mark.parametrize("protocol", CLIENTS)
async def test_an_answer_after_its_limit_is_a_timeout_also_if_nobody_looked_before(
    protocol: str, kind: str, target: TargetServer, clock: Clock
) -> None:
    limits = Timeouts(**{kind: 5.0})
    network = Network()
    async with calling(protocol, network, target) as call:
        await call(limits)

        late = asyncio.ensure_future(call(limits))
        while network.sent < 2:
            await asyncio.sleep(0)
        clock.ahead = 5.0
        with pytest.raises(CallFailed) as failed:
            await late

        assert failed.value.kind == f"{kind} timeout"
        assert (network.sent, network.answered, network.aborted) == (2, 1, 0)
        assert (await call(limits)).ok


@pytest.mark.parametrize("protocol", CLIENTS)
async def test_an_answer_within_its_limit_is_one_also_after_the_limit_of_the_call_before(
    protocol: str, target: TargetServer, clock: Clock
) -> None:
    async with calling(protocol, Network(), target) as call:
        for _ in range(3):
            assert (await call("5s")).ok
            clock.ahead += 5.0


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("protocol", CLIENTS)
def test_a_call_ends_at_its_limit_and_not_much_later(protocol: str, new_loop: Any) -> None:
    async def ends() -> None:
        options = TargetOptions(tcp_port=0, udp_port=0, latency="1h")
        async with TargetServer(options) as target, calling(protocol, Network(), target) as call:
            ended = asyncio.ensure_future(call("10ms"))
            # on a machine where everything is late, this one is, too; and what the limit has woken gets its turns
            await asyncio.sleep(0.03)
            for _ in range(20):
                await asyncio.sleep(0)
            ended.cancel()  # nothing happens to one that has ended
            (how,) = await asyncio.gather(ended, return_exceptions=True)
            assert isinstance(how, CallFailed)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(ends())


@pytest.mark.parametrize("protocol", CLIENTS)
async def test_a_shorter_limit_counts_beside_longer_ones(protocol: str) -> None:
    options = TargetOptions(tcp_port=0, udp_port=0, latency="1h")
    async with TargetServer(options) as target, calling(protocol, Network(), target) as call:
        long, short = asyncio.ensure_future(call("1h")), asyncio.ensure_future(call("10ms"))
        with pytest.raises(CallFailed, match=r"within 0\.01 s"):
            await short
        assert not long.done()
        long.cancel()


async def test_opening_a_connection_is_part_of_the_whole_call(clock: Clock, target: TargetServer) -> None:
    async def slow_lookup(host: str, port: int, kind: int) -> list[Address]:
        clock.ahead = 5.0
        return await system_lookup("127.0.0.1", port, kind)

    line = tcp.TCPClient(Network(lookup=slow_lookup))
    # an address is not looked up, a name is
    url = target.tcp_url.replace("127.0.0.1", "shop.test")
    with pytest.raises(CallFailed) as failed:
        await line.send(url, b"hello", timeout=Timeouts(total=5.0))
    assert failed.value.kind == "total timeout"


async def test_each_phase_has_its_own_limit_and_begins_anew_with_every_piece() -> None:
    call = PendingCall(started=100.0, limits=Timeouts(write=1.0, read=2.0, total=10.0), what="it")
    call.last, call.writing = 100.0, True

    assert call.goes_on(100.9)
    call.writing = False
    assert call.goes_on(102.8)
    assert call.goes_on(104.7)
    assert not call.goes_on(106.7)
    with pytest.raises(CallFailed, match="no data arrived within 2 s"):
        await call.future


async def test_a_write_that_was_too_slow_is_a_write_timeout_also_if_it_ends_well() -> None:
    call = PendingCall(started=100.0, limits=Timeouts(write=1.0), what="it")
    call.last, call.writing = 100.0, True

    assert not call.goes_on(101.0)
    with pytest.raises(CallFailed) as failed:
        await call.future
    assert failed.value.kind == "write timeout"
