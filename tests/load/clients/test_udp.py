"""Datagrams against the target's echo."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from mainstay.errors import CallFailed, InvalidInput
from mainstay.load.clients.network import Network, Timeouts
from mainstay.load.clients.udp import UDPClient
from mainstay.load.target import TargetOptions, TargetServer


@contextlib.asynccontextmanager
async def client(network: Network | None = None) -> AsyncIterator[tuple[UDPClient, Network]]:
    network = network or Network()
    made = UDPClient(network)
    try:
        yield made, network
    finally:
        await made.close()


async def test_a_datagram_comes_back() -> None:
    async with TargetServer(TargetOptions(udp_port=0)) as target, client() as (udp, network):
        first = await udp.bidirectional(target.udp_url, b"ping")
        second = await udp.bidirectional(target.udp_url, {"n": 1})
        assert (first.content, second.json()) == (b"ping", {"n": 1})
        assert first.opening is not None
        assert second.opening is None
        assert first.started <= first.written <= first.first <= first.ended
        assert (network.sent, network.answered) == (2, 2)
        assert target.counts().paths["udp"].completed == 2


async def test_datagrams_are_sent_and_received_by_calls_of_their_own() -> None:
    async with TargetServer(TargetOptions(udp_port=0)) as target, client() as (udp, _):
        await udp.send(target.udp_url, b"one")
        await udp.send(target.udp_url, b"two")
        assert [(await udp.receive(target.udp_url)).content for _ in range(2)] == [b"one", b"two"]


async def test_calls_at_the_same_time_get_their_own_answers() -> None:
    options = TargetOptions(udp_port=0, latency="uniform 0ms 5ms", seed=1)
    async with TargetServer(options) as target, client() as (udp, _):
        words = [f"word {n}".encode() for n in range(10)]
        answers = await asyncio.gather(*(udp.bidirectional(target.udp_url, word) for word in words))
        assert [answer.content for answer in answers] == words


async def test_a_late_answer_is_not_taken_for_the_next_one() -> None:
    async with TargetServer(TargetOptions(udp_port=0, latency="100ms")) as target, client() as (udp, network):
        with pytest.raises(CallFailed) as failed:
            await udp.bidirectional(target.udp_url, b"first", timeout=Timeouts(read=0.01))
        assert failed.value.kind == "read timeout"
        assert (await udp.bidirectional(target.udp_url, b"second")).content == b"second"
        assert (network.sent, network.answered, network.aborted) == (2, 1, 0)


async def test_nobody_there_is_refused() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    async with client() as (udp, _):
        with pytest.raises(CallFailed, match="no server listens") as failed:
            await udp.bidirectional(f"udp://127.0.0.1:{port}", b"x")
        assert failed.value.kind == "refused"


async def test_too_big_a_datagram_is_refused_with_the_limit() -> None:
    async with TargetServer(TargetOptions(udp_port=0)) as target, client() as (udp, _):
        with pytest.raises(CallFailed, match="65507") as failed:
            await udp.send(target.udp_url, bytes(70_000))
        assert failed.value.kind == "size"


async def test_a_call_that_is_cancelled_or_closed_is_aborted() -> None:
    async with TargetServer(TargetOptions(udp_port=0, latency="1h")) as target, client() as (udp, network):
        calls = [asyncio.ensure_future(udp.bidirectional(target.udp_url, b"x")) for _ in range(2)]
        while target.counts().under_way < 2:
            await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.wait(calls[:1])
        await udp.close()
        with pytest.raises(CallFailed, match="the client closed"):
            await calls[1]
        assert (network.sent, network.answered, network.aborted) == (2, 0, 2)


async def test_other_urls_and_proxies_are_refused() -> None:
    async with client() as (udp, _):
        with pytest.raises(InvalidInput, match="not for UDP"):
            await udp.send("tcp://127.0.0.1:9000", b"x")
    async with client(Network(proxy="http://127.0.0.1:3128")) as (udp, _):
        with pytest.raises(InvalidInput, match="not work through a proxy"):
            await udp.send("udp://127.0.0.1:9000", b"x")


class Twice(asyncio.DatagramProtocol):
    """Sends each datagram back twice."""

    _before = b"nothing"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        for _ in range(2):
            self._transport.sendto(data, addr)


@contextlib.asynccontextmanager
async def answering(protocol: Twice) -> AsyncIterator[str]:
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: protocol, local_addr=("127.0.0.1", 0)
    )
    try:
        yield f"udp://127.0.0.1:{transport.get_extra_info('sockname')[1]}"
    finally:
        transport.close()


async def test_a_duplicate_is_not_taken_for_the_answer_of_the_next_call() -> None:
    async with answering(Twice()) as url:
        async with client() as (udp, network):
            answers = [(await udp.bidirectional(url, b"%d" % n)).content for n in range(5)]
            assert answers == [b"%d" % n for n in range(5)]
        assert (network.sent, network.answered, network.unexpected) == (5, 5, 5)


async def test_what_came_before_can_be_received() -> None:
    async with answering(Twice()) as url, client() as (udp, network):
        assert (await udp.bidirectional(url, b"one")).content == b"one"
        assert (await udp.receive(url)).content == b"one"
        assert network.unexpected == 0


async def test_match_says_which_datagram_is_the_answer() -> None:
    class Late(Twice):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            """The duplicate of the answer before comes first."""
            for told in (self._before, data):
                self._transport.sendto(told, addr)
            self._before = data

    async with answering(Late()) as url:
        async with client() as (udp, network):
            for n in range(5):
                sent = b"%d" % n
                assert (await udp.bidirectional(url, sent, match=sent.__eq__)).content == sent
            assert (await udp.receive(url)).content == b"nothing"
        assert network.unexpected == 4


async def test_what_match_raises_is_raised_by_the_call() -> None:
    async with answering(Twice()) as url, client() as (udp, _):
        with pytest.raises(ValueError, match="invalid literal"):
            await udp.bidirectional(url, b"word", match=lambda got: int(got) > 0)
