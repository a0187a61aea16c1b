"""When connections read and write: what may happen between a call and its turn."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import AsyncIterator

import pytest
import uvloop

from mainstay.errors import CallFailed
from mainstay.load.clients.http import HTTPClient, turns
from mainstay.load.clients.http.connection import HTTP1Connection
from mainstay.load.clients.http.pool import Pool
from mainstay.load.clients.network import Network
from tests.load.clients.http.scripted import OK, Heard, Talk, serving

BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"
TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
LARGE = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + bytes(1_000_000)


class Wire:
    """A connection whose other end is in the test's own hand."""

    def __init__(self, http: HTTPClient) -> None:
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        self.theirs.setblocking(False)
        self._call = http._encoder.call("GET", "http://127.0.0.1:1/", {})
        self._shared = http._shared
        pool = http._pools.setdefault(self._call.parts.origin, Pool(self._call.parts.origin))
        pool.open += 1
        self.connection = HTTP1Connection(ours, pool=pool, owner=http, shared=self._shared)

    def start(self) -> asyncio.Future:
        return self.connection.start(self._call, time.perf_counter())

    def read(self) -> None:
        """What the loop does when something has come."""
        self._shared.turns._arrived()

    def heard(self) -> int:
        """How many requests have come."""
        try:
            return self.theirs.recv(65536).count(b"\r\n\r\n")
        except BlockingIOError:
            return 0


@pytest.fixture
async def wire(http: HTTPClient) -> AsyncIterator[Wire]:
    made = Wire(http)
    yield made
    made.theirs.close()


@pytest.mark.parametrize("unasked", [OK, TIMED_OUT, b"what was that?"])
async def test_what_comes_on_a_kept_connection_before_the_call_has_left_is_not_its_answer(
    http: HTTPClient, network: Network, unasked: bytes
) -> None:
    talks = []

    async def answer(heard: Heard, talk: Talk) -> bytes:
        talks.append(talk)
        return b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % heard.connection

    async with serving(answer) as server:
        await http.get(server.url)
        talks[0].writer.write(unasked)
        # called when the loop knows already that something has come, and has not told yet
        calls = []
        asyncio.get_running_loop().call_soon(lambda: calls.append(http.post(server.url, data=b"once")))
        await asyncio.sleep(0)
        r = await calls[0]

    assert (r.content, [heard.body for heard in server.heard]) == (b"2", [b"", b"once"])
    assert (network.sent, network.answered, network.aborted, network.resent) == (2, 2, 0, 0)
    assert network.unexpected == 1


@pytest.mark.parametrize("early", [BUSY, TIMED_OUT])
async def test_a_server_that_answers_a_fresh_connection_before_it_is_asked_is_asked_once(
    wire: Wire, network: Network, early: bytes
) -> None:
    wire.theirs.send(early)
    answer = wire.start()
    wire.read()
    r = await answer

    assert (r.status, wire.heard()) == (int(early[9:12]), 1)
    assert (network.sent, network.answered, network.aborted) == (1, 1, 0)


async def test_what_is_not_http_is_named_also_if_it_comes_before_the_call_has_left(wire: Wire) -> None:
    wire.theirs.send(b"SSH-2.0-OpenSSH_9.2\r\n")
    answer = wire.start()
    wire.read()

    with pytest.raises(CallFailed, match="it begins with b'SSH-2.0"):
        await answer


async def test_a_call_that_cannot_be_sent_was_not_sent(http: HTTPClient, network: Network) -> None:
    wire = Wire(http)
    answer = wire.start()
    wire.theirs.close()

    with pytest.raises(CallFailed, match="closed the connection before its response"):
        await answer
    assert (network.sent, network.answered, network.aborted) == (0, 0, 0)


async def test_an_answer_that_cannot_be_taken_takes_no_other_with_it(
    http: HTTPClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settle(*_: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(HTTPClient, "settle", settle)
    bad, good = Wire(http), Wire(http)
    failing, fine = bad.start(), good.start()
    await asyncio.sleep(0)
    bad.theirs.send(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n")
    good.theirs.send(OK)
    good.read()

    assert (await fine).content == b"ok"
    with pytest.raises(RuntimeError, match="ours"):
        await failing
    for one in (bad, good):
        one.theirs.close()


async def test_no_file_descriptor_left_to_wait_with_is_named_and_leaves_nothing_open(http: HTTPClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        await http._network.addresses("127.0.0.1", listening.getsockname()[1])
        probe = socket.socket()
        lowest = probe.fileno()
        probe.close()
        # enough for the connection, and not for what tells when it can be read
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, hard))
        try:
            with pytest.raises(CallFailed, match="ulimit -n") as failed:
                await http.get(url)
            with socket.socket() as again:
                assert again.fileno() == lowest
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert failed.value.kind == "files"
    assert [pool.open for pool in http._pools.values()] == [0]


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("epoll", [True, False])
def test_with_and_without_epoll_all_is_read_written_and_counted(
    new_loop, epoll: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_EPOLL", epoll)

    async def answer(heard: Heard, talk: Talk) -> bytes | None:
        if heard.path == "/never":
            await talk.gone()
            return None
        return {"/large": LARGE, "/last": TIMED_OUT}.get(heard.path, OK)

    async def calls() -> None:
        network = Network()
        clients = [HTTPClient(network) for _ in range(5)]
        async with serving(answer) as server:
            for _ in range(3):
                answers = await asyncio.gather(*(one.get(server.url) for one in clients for _ in range(3)))
                assert {r.content for r in answers} == {b"ok"}
            # closed by the other side after each, so that descriptors are used again
            for _ in range(3):
                answers = await asyncio.gather(*(one.get(f"{server.url}/last") for one in clients))
                assert {r.status for r in answers} == {408}
            streamed = await clients[0].get(f"{server.url}/large", stream=True)
            assert sum([len(piece) async for piece in streamed.chunks()]) == 1_000_000
            assert (await clients[0].post(server.url, data=bytes(3_000_000))).ok
            under_way = [one.get(f"{server.url}/never") for one in clients]
            while sum(heard.path == "/never" for heard in server.heard) < 5:
                await asyncio.sleep(0)
            await asyncio.gather(*(one.close() for one in clients))
            assert all(isinstance(one, CallFailed) for one in await asyncio.gather(*under_way, return_exceptions=True))
        assert network.sent == len(server.heard) == 45 + 15 + 2 + 5
        assert (network.answered, network.aborted) == (62, 5)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(calls())
