"""WebSocket against the target's echo, and against servers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from websockets.asyncio.server import ServerConnection, serve

from mainstay.errors import CallFailed, InvalidInput
from mainstay.load.clients.network import Network, Timeouts, Tls
from mainstay.load.clients.websocket import WebsocketClient
from mainstay.load.prepared import Data
from mainstay.load.target import TargetOptions, TargetServer
from tests.load.clients.serving import serving


@contextlib.asynccontextmanager
async def client(network: Network | None = None) -> AsyncIterator[tuple[WebsocketClient, Network]]:
    network = network or Network()
    made = WebsocketClient(network)
    try:
        yield made, network
    finally:
        await made.close()


@contextlib.asynccontextmanager
async def talking(talk: Callable[[ServerConnection], Awaitable[None]]) -> AsyncIterator[str]:
    """The address of a server that does this with each connection."""
    async with serve(talk, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/"


async def test_one_call_sends_and_receives_on_a_connection_that_is_kept() -> None:
    async with TargetServer() as target, client() as (ws, network):
        first = await ws.send(target.websocket_url, "hello")
        second = await ws.send(target.websocket_url, b"\x00\x01")
        third = await ws.send(target.websocket_url, {"n": 1})
        fourth = await ws.send(target.websocket_url, Data({"n": 2}))
        assert [first.data, second.data, third.json(), fourth.json()] == ["hello", b"\x00\x01", {"n": 1}, {"n": 2}]
        assert first.opening is not None
        assert second.opening is None
        assert first.started <= first.written <= first.first <= first.ended
        assert second.sent == 2 + 4 + 2
        assert second.received == 2 + 2
        assert (network.sent, network.answered, network.aborted) == (4, 4, 0)
        counts = target.counts()
        assert (counts.connections, counts.paths["ws"].completed) == (1, 4)


async def test_a_connection_of_ones_own_sends_and_receives() -> None:
    async with TargetServer() as target, client() as (ws, network):
        async with ws.connect(target.websocket_url) as connection:
            assert connection.response is not None
            assert connection.response.status == 101
            await connection.send("one")
            await connection.send("two")
            assert [(await connection.receive()).data for _ in range(2)] == ["one", "two"]
            assert (await connection.request("three")).data == "three"
        with pytest.raises(CallFailed, match="closed"):
            await connection.send("four")
        assert network.aborted == 0
        while target.counts().open:
            await asyncio.sleep(0)


@pytest.mark.parametrize("compress", [False, True])
async def test_long_messages_survive(compress: bool) -> None:
    text = "häufig " * 100_000
    async with TargetServer() as target, client() as (ws, _):
        async with ws.connect(target.websocket_url, compress=compress) as connection:
            result = await connection.request(text)
        assert result.data == text
        assert (result.received < 100_000) is compress


async def test_delays_of_the_target_are_in_the_result() -> None:
    async with TargetServer(TargetOptions(latency="5ms")) as target, client() as (ws, _):
        await ws.send(target.websocket_url, "warm")
        assert (await ws.send(target.websocket_url, "x")).elapsed >= 0.005


async def test_tls_works_and_is_verified() -> None:
    async with TargetServer(TargetOptions(tls=True)) as target:
        async with client(Network(tls=Tls(ca=target.certificate))) as (ws, _):
            assert (await ws.send(target.websocket_url, "x" * 100_000)).data == "x" * 100_000
        async with client() as (ws, _):
            with pytest.raises(CallFailed) as failed:
                await ws.send(target.websocket_url, "x")
            assert failed.value.kind == "tls"


async def test_calls_at_the_same_time_get_their_own_answers() -> None:
    async with TargetServer(TargetOptions(latency="uniform 0ms 5ms", seed=2)) as target, client() as (ws, _):
        words = [f"word {n}" for n in range(10)]
        answers = await asyncio.gather(*(ws.send(target.websocket_url, word) for word in words))
        assert [answer.data for answer in answers] == words


async def test_a_page_that_is_no_websocket_is_told_by_its_status() -> None:
    async with TargetServer() as target, client() as (ws, network):
        with pytest.raises(CallFailed, match="answered 404 instead") as failed:
            await ws.send(target.url.replace("http", "ws") + "/nowhere", "x")
        assert failed.value.kind == "http 404"
        assert network.sent == 0


async def test_headers_go_with_the_opening() -> None:
    seen = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set_result(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with serving(listen) as place, client() as (ws, _):
        url = f"ws://ann:pw@{place}/chat?room=1"
        with pytest.raises(CallFailed) as failed:
            await ws.send(url, "x", headers={"X-Tenant": "blue"})
        assert "pw" not in str(failed.value)
    head = (await seen).decode()
    assert head.startswith("GET /chat?room=1 HTTP/1.1")
    assert "X-Tenant: blue" in head
    assert "Authorization: Basic" in head


async def test_a_server_that_closes_is_told_with_its_code() -> None:
    async with TargetServer() as target, client() as (ws, _), ws.connect(target.websocket_url) as connection:
        assert connection._transport is not None
        # a frame that no client may send: the server ends the connection for it
        connection._transport.write(b"\x83\x80\x00\x00\x00\x00")
        with pytest.raises(CallFailed, match="1002") as failed:
            await connection.receive()
        assert failed.value.kind == "closed 1002"


@pytest.mark.parametrize(("code", "reason"), [(1000, "done"), (1011, ""), (4001, "no seat")])
async def test_the_code_of_a_close_is_its_kind_of_error(code: int, reason: str) -> None:
    async def close(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.close(code, reason)

    async with talking(close) as url, client() as (ws, _):
        with pytest.raises(CallFailed) as failed:
            await ws.send(url, "x")
        assert failed.value.kind == f"closed {code}"
        assert str(failed.value).endswith(f"with code {code}{f': {reason}' if reason else ''}")


async def test_a_connection_that_breaks_has_no_code() -> None:
    async def vanish(connection: ServerConnection) -> None:
        await connection.recv()
        connection.transport.abort()

    async with talking(vanish) as url, client() as (ws, _):
        with pytest.raises(CallFailed) as failed:
            await ws.send(url, "x")
        assert failed.value.kind == "closed"


async def test_messages_that_came_before_a_request_are_not_its_answer() -> None:
    async def push(connection: ServerConnection) -> None:
        await connection.send("welcome")
        async for message in connection:
            await connection.send(message)

    async with talking(push) as url, client() as (ws, network):
        async with ws.connect(url) as connection:
            while not connection._held:
                await asyncio.sleep(0)
            assert (await connection.request("one")).data == "one"
            await connection.send("two")
            assert (await connection.receive()).data == "two"
        assert (network.sent, network.answered, network.unexpected) == (2, 2, 1)


async def test_match_tells_answers_from_messages_that_the_server_sends_by_itself() -> None:
    async def news(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send("news")
            await connection.send(message)

    async with talking(news) as url, client() as (ws, network):
        async with ws.connect(url) as connection:
            for word in ("one", "two"):
                answer = await connection.request(word, match=lambda got: got != "news")
                assert answer.data == word
            assert [(await connection.receive()).data for _ in range(2)] == ["news", "news"]
        assert network.unexpected == 0
        assert (await ws.send(url, "three", match="three".__eq__)).data == "three"
        await ws.close()
        assert network.unexpected == 1


async def test_each_of_several_messages_that_come_at_once_has_its_own_times_and_bytes() -> None:
    async with TargetServer() as target, client() as (ws, _), ws.connect(target.websocket_url) as connection:
        call = asyncio.ensure_future(connection.request("x", match="second".__eq__))
        await asyncio.sleep(0)
        # as a server that sends two messages in one packet
        connection._received(b"\x81\x05first\x81\x06second")
        answer = await call
        held = await connection.receive()

        assert (answer.data, answer.received) == ("second", 8)
        assert answer.written <= answer.first <= answer.ended
        assert (held.data, held.received) == ("first", 7)


async def test_rubbish_instead_of_a_frame_is_a_protocol_failure() -> None:
    async def rubbish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"what?\r\n\r\n")

    async with serving(rubbish) as place, client() as (ws, _):
        with pytest.raises(CallFailed) as failed:
            await ws.send(f"ws://{place}/", "x")
        assert failed.value.kind == "protocol"


async def test_no_answer_in_time_is_a_timeout_and_the_next_call_has_a_new_connection() -> None:
    async with TargetServer(TargetOptions(latency="80ms")) as target, client() as (ws, network):
        with pytest.raises(CallFailed) as failed:
            await ws.send(target.websocket_url, "first", timeout=Timeouts(read=0.02))
        assert failed.value.kind == "read timeout"
        assert (await ws.send(target.websocket_url, "second")).data == "second"
        assert (network.sent, network.answered, network.aborted) == (2, 1, 0)


async def test_calls_that_are_cancelled_or_closed_are_aborted_and_the_target_saw_them() -> None:
    async with TargetServer(TargetOptions(latency="1h")) as target, client() as (ws, network):
        calls = [asyncio.ensure_future(ws.send(target.websocket_url, "x")) for _ in range(2)]
        while target.counts().under_way < 2:
            await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.wait(calls[:1])
        await ws.close()
        with pytest.raises(CallFailed):
            await calls[1]
        assert (network.sent, network.answered, network.aborted) == (2, 0, 2)
        while target.counts().under_way:
            await asyncio.sleep(0)
        assert target.counts().abandoned == 2


async def test_two_that_receive_on_one_connection_are_refused() -> None:
    async with TargetServer() as target, client() as (ws, _), ws.connect(target.websocket_url) as connection:
        first = asyncio.ensure_future(connection.receive())
        await asyncio.sleep(0)
        with pytest.raises(InvalidInput, match="wait for it"):
            await connection.receive()
        await connection.send("hello")
        assert (await first).data == "hello"


async def test_other_urls_are_refused() -> None:
    async with client() as (ws, _):
        with pytest.raises(InvalidInput, match="not for WebSocket"):
            await ws.send("tcp://127.0.0.1:9000/", "x")


async def test_a_path_is_put_behind_the_base_of_the_test() -> None:
    async with TargetServer() as target, client() as (ws, _):
        ws.base_url = target.url
        assert (await ws.send("/ws", "x")).data == "x"


async def test_a_ping_before_the_answer_is_no_part_of_its_times() -> None:
    async def talk(server: ServerConnection) -> None:
        async for message in server:
            # the pong has come before the answer is sent
            await (await server.ping())
            await server.send(message)

    async with talking(talk) as url, client() as (ws, _):
        for _ in range(3):
            answer = await ws.send(url, "hello")
            assert answer.data == "hello"
            assert answer.started <= answer.written <= answer.first <= answer.ended


async def test_a_call_that_fails_has_its_bytes() -> None:
    async def talk(server: ServerConnection) -> None:
        await server.recv()
        await server.close(4001)

    async with talking(talk) as url, client() as (ws, _):
        with pytest.raises(CallFailed) as failed:
            await ws.send(url, "hello")
    assert failed.value.sent == 2 + 4 + 5


async def test_a_call_that_is_aborted_leaves_its_bytes() -> None:
    heard = asyncio.Event()

    async def talk(server: ServerConnection) -> None:
        await server.recv()
        heard.set()
        await server.wait_closed()

    async with talking(talk) as url, client() as (ws, network):
        call = asyncio.ensure_future(ws.send(url, "hello"))
        await heard.wait()
        call.cancel()
        await asyncio.wait([call])
    assert (network.aborted, network.aborted_sent) == (1, 2 + 4 + 5)
