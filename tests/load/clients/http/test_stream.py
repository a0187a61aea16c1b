"""Bodies that are read while they come in."""

from __future__ import annotations

import asyncio

import pytest

from mainstay.errors import CallFailed, InvalidInput
from mainstay.load.clients.events import EventParser
from mainstay.load.clients.http import HTTPClient, ServerSentEvent
from mainstay.load.clients.http.stream import HIGH
from mainstay.load.clients.network import Network, Timeouts
from tests.load.clients.http.scripted import OK, Heard, Talk, serving

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"


async def test_a_stream_is_there_with_its_head_and_ends_with_its_body(http: HTTPClient, network: Network) -> None:
    go = asyncio.Event()

    async def answer(heard: Heard, talk: Talk) -> bytes:
        await talk.say(HEAD + b"3\r\none\r\n")
        await go.wait()
        return b"3\r\ntwo\r\n0\r\n\r\n"

    async with serving(answer) as server:
        r = await http.get(server.url, stream=True)
        assert (r.status, network.answered) == (200, 0)
        with pytest.raises(InvalidInput, match="stream"):
            _ = r.content
        before = r.ended
        got = []
        async for chunk in r.chunks():
            got.append(chunk)
            go.set()
        assert got == [b"one", b"two"]
        assert r.ended > before
        assert r.received == len(HEAD) + len(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
        assert network.answered == 1
        with pytest.raises(InvalidInput, match="once"):
            await r.read()
        await (await http.get(server.url, stream=True)).read()

    assert server.connections == 1


async def test_a_stream_that_is_left_closes_its_connection(http: HTTPClient, network: Network) -> None:
    gone = asyncio.Event()

    async def answer(heard: Heard, talk: Talk) -> bytes | None:
        if heard.path == "/next":
            return OK
        await talk.say(HEAD + b"3\r\none\r\n")
        await talk.gone()
        gone.set()
        return None

    async with serving(answer) as server:
        r = await http.get(server.url, stream=True)
        chunks = r.chunks()
        assert await anext(chunks) == b"one"
        await chunks.aclose()
        await gone.wait()
        assert (await http.get(f"{server.url}/next")).opening is not None

    assert r.ok
    assert (network.sent, network.answered, network.aborted) == (2, 2, 0)


async def test_a_stream_that_breaks_says_so_where_it_is_read(http: HTTPClient) -> None:
    async def answer(heard: Heard, talk: Talk) -> None:
        await talk.say(HEAD + b"3\r\none\r\n9\r\nhalf")

    async with serving(answer) as server:
        r = await http.get(server.url, stream=True)
        got = []

        async def read() -> None:
            async for chunk in r.chunks():
                got.append(chunk)  # noqa: PERF401 - what came before it broke is looked at

        with pytest.raises(CallFailed, match="closed the connection after") as failed:
            await read()

    assert b"".join(got) == b"onehalf"
    assert (failed.value.kind, r.failure) == ("closed", "closed")


async def test_a_stream_that_falls_silent_times_out(http: HTTPClient) -> None:
    async def answer(heard: Heard, talk: Talk) -> None:
        await talk.say(HEAD + b"3\r\none\r\n")
        await talk.gone()

    async with serving(answer) as server:
        r = await http.get(server.url, stream=True, timeout=Timeouts(read=0.05))
        with pytest.raises(CallFailed) as failed:
            await r.read()

    assert failed.value.kind == "read timeout"


async def test_the_server_waits_for_a_slow_reader(http: HTTPClient) -> None:
    size = 40 * 1024 * 1024

    async def answer(heard: Heard, talk: Talk) -> None:
        nonlocal said
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 65536):
            await talk.say(bytes(65536))
            said += 65536
        await talk.gone()

    said = 0
    async with serving(answer) as server:
        r = await http.get(server.url, stream=True)
        connection = next(iter(http._shared.connections))
        while not connection._paused:
            await asyncio.sleep(0)
        held = sum(map(len, connection.reading.body.parts))
        got = 0
        async for chunk in r.chunks():
            got += len(chunk)

    assert HIGH < held < 2 * HIGH + 65536
    assert got == said == size


async def test_a_stream_follows_redirects_first(http: HTTPClient) -> None:
    async def answer(heard: Heard, talk: Talk) -> bytes:
        if heard.path == "/a":
            return b"HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 4\r\n\r\ngone"
        return OK

    async with serving(answer) as server:
        r = await http.get(f"{server.url}/a", stream=True)
        assert await r.read() == b"ok"

    assert r.redirects == 1


async def test_closing_the_session_ends_a_stream(network: Network) -> None:
    async def answer(heard: Heard, talk: Talk) -> None:
        await talk.say(HEAD)
        await talk.gone()

    http = HTTPClient(network)
    async with serving(answer) as server:
        r = await http.get(server.url, stream=True)
        await http.close()
        with pytest.raises(CallFailed, match="closed while"):
            await r.read()

    assert network.aborted == 1


async def test_events_come_as_they_are_sent(http: HTTPClient, network: Network) -> None:
    seen = asyncio.Event()

    async def answer(heard: Heard, talk: Talk) -> None:
        await talk.say(EVENTS + b": hello\n\nevent: tick\nid: 7\ndata: 1\n\n")
        await seen.wait()
        await talk.say("retry: 250\r\ndata: ü\r\ndata: 2\r\n\r\ndata: never finished".encode())

    async with serving(answer) as server:
        got = []
        async with http.sse(f"{server.url}/events") as events:
            async for event in events:
                got.append(event)
                seen.set()

    assert got == [ServerSentEvent(event="tick", data="1", id="7"), ServerSentEvent(data="ü\n2", id="7", retry=250)]
    assert server.heard[0].headers["accept"] == "text/event-stream"
    result = events.result
    assert (result.status, result.ok, network.answered) == (200, True, 1)
    assert result.elapsed > 0


async def test_leaving_the_events_ends_the_call_without_failure(http: HTTPClient) -> None:
    gone = asyncio.Event()

    async def answer(heard: Heard, talk: Talk) -> None:
        await talk.say(EVENTS + b"data: 1\n\ndata: 2\n\n")
        await talk.gone()
        gone.set()

    async with serving(answer) as server:
        async with http.sse(server.url) as events:
            async for event in events:
                assert event.data == "1"
                break
        await gone.wait()

    assert events.result.ok
    assert events.result.ended > events.result.first


async def test_an_answer_that_has_no_events_is_refused_and_a_failed_one_is_returned(http: HTTPClient) -> None:
    async def answer(heard: Heard, talk: Talk) -> bytes:
        return OK if heard.path == "/ok" else b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"

    async with serving(answer) as server:
        with pytest.raises(CallFailed, match="text/event-stream"):
            async with http.sse(f"{server.url}/ok"):
                pass
        async with http.sse(f"{server.url}/busy") as events:
            assert [event async for event in events] == []

    assert events.result.failure == "http 503"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_events_are_the_same_in_whatever_pieces_they_come(end: str) -> None:
    text = "\ufeff" + "data: a|data:b||:c|id: 1|event: x|data|||data: z||".replace("|", end)
    expected = [
        ServerSentEvent(data="a\nb"),
        ServerSentEvent(event="x", data="", id="1"),
        ServerSentEvent(data="z", id="1"),
    ]

    for size in range(1, len(text) + 1):
        parser = EventParser()
        got = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
        assert got == expected, size
