"""HTTP/2 against the target, which speaks it with a package of its own, and against servers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Iterator

import hpack
import pytest
from hypothesis import given, settings, strategies as st

from mainstay.errors import CallFailed, InvalidInput
from mainstay.load.clients.http2 import HTTP2Client, frames
from mainstay.load.clients.http2.connection import HTTP2Connection
from mainstay.load.clients.network import Network, Timeouts, Tls
from mainstay.load.results import Opening
from mainstay.load.target import TargetOptions, TargetServer
from tests.load.clients.serving import serving


@contextlib.asynccontextmanager
async def client(network: Network | None = None) -> AsyncIterator[tuple[HTTP2Client, Network]]:
    network = network or Network()
    made = HTTP2Client(network)
    try:
        yield made, network
    finally:
        await made.close()


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def tls(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def target(tls: bool) -> AsyncIterator[TargetServer]:
    async with TargetServer(TargetOptions(tls=tls)) as target:
        yield target


@pytest.fixture
async def http2(target: TargetServer) -> AsyncIterator[HTTP2Client]:
    async with client(Network(tls=Tls(ca=target.certificate or None))) as (made, _):
        yield made


async def test_calls_are_answered_on_one_connection(target: TargetServer, http2: HTTP2Client) -> None:
    first = await http2.get(f"{target.url}/")
    second = await http2.get(f"{target.url}/?status=404&size=10")
    assert (first.status, first.content, first.version, first.ok) == (200, b"ok", "2", True)
    assert (second.status, second.failure, len(second.content)) == (404, "http 404", 10)
    assert first.headers["Content-Type"] == "text/plain"
    assert first.opening is not None
    assert (first.opening.tls > 0) is target.url.startswith("https")
    assert second.opening is None
    assert first.started <= first.written <= first.first <= first.ended
    counts = target.counts()
    assert (counts.connections, counts.statuses) == (1, {"200": 1, "404": 1})


async def test_all_that_is_said_with_a_call_arrives(target: TargetServer, http2: HTTP2Client) -> None:
    answer = await http2.post(
        f"{target.url}/echo?a=1",
        json={"user": "ann"},
        headers={"X-Tenant": "blue"},
        params={"b": 2},
        cookies={"theme": "dark"},
        auth="token",
    )
    told = answer.json()
    headers = dict(told["headers"])
    assert (told["method"], told["query"], told["body"]) == ("POST", {"a": "1", "b": "2"}, '{"user":"ann"}')
    assert headers["x-tenant"] == "blue"
    assert headers["cookie"] == "theme=dark"
    assert headers["authorization"] == "Bearer token"
    assert headers["content-type"] == "application/json"
    assert "host" not in headers


async def test_headers_may_be_longer_than_a_frame(target: TargetServer, http2: HTTP2Client) -> None:
    told = (await http2.get(f"{target.url}/echo", headers={"X-Long": "~" * 30_000})).json()
    assert dict(told["headers"])["x-long"] == "~" * 30_000


async def test_many_calls_are_under_way_at_once(target: TargetServer, http2: HTTP2Client) -> None:
    calls = [http2.get(f"{target.url}/?delay={20 - n}ms&size={n}") for n in range(1, 20)]
    answers = await asyncio.gather(*calls)
    assert [len(answer.content) for answer in answers] == list(range(1, 20))
    assert target.counts().connections == 1


async def test_cookies_and_redirects_are_followed(target: TargetServer, http2: HTTP2Client) -> None:
    token = (await http2.post(f"{target.url}/login", json={"user": "ann"})).json()["token"]
    assert (await http2.get(f"{target.url}/me")).json() == {"user": "ann", "token": token}
    answer = await http2.get(f"{target.url}/redirect/3")
    assert (answer.status, answer.redirects, answer.url) == (200, 3, f"{target.url}/")
    assert (await http2.get(f"{target.url}/redirect/1", redirects=0)).status == 302
    with pytest.raises(CallFailed) as failed:
        await http2.get(f"{target.url}/redirect/3", redirects=2)
    assert failed.value.kind == "redirects"


async def test_megabytes_go_out_and_come_back(target: TargetServer, http2: HTTP2Client) -> None:
    answer = await http2.post(f"{target.url}/echo", data=b"x" * 1_000_000)
    assert answer.json()["body"] == "x" * 1_000_000
    assert answer.sent > 1_000_000
    assert len((await http2.get(f"{target.url}/?size=20MB")).content) == 20_000_000


async def test_a_body_may_be_made_while_it_is_sent(target: TargetServer, http2: HTTP2Client) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for n in range(5):
            yield f"{n}".encode() * 100_000

    assert len((await http2.post(f"{target.url}/echo", data=pieces())).json()["body"]) == 500_000
    assert (await http2.post(f"{target.url}/echo", data=[b"a", b"b"])).json()["body"] == "ab"


async def test_what_makes_a_body_may_fail(target: TargetServer, http2: HTTP2Client) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"a"
        raise ZeroDivisionError("of the user")

    with pytest.raises(ZeroDivisionError, match="of the user"):
        await http2.post(f"{target.url}/echo", data=pieces())
    assert (await http2.get(f"{target.url}/")).ok


async def test_a_stream_is_read_as_it_comes(target: TargetServer, http2: HTTP2Client) -> None:
    answer = await http2.get(f"{target.url}/slow-body?for=30ms&n=3&size=300", stream=True)
    seen = [piece async for piece in answer.chunks()]
    assert [len(piece) for piece in seen] == [100, 100, 100]
    assert answer.elapsed >= 0.029
    long = await http2.get(f"{target.url}/?size=20MB", stream=True)
    assert sum([len(piece) async for piece in long.chunks()]) == 20_000_000


async def test_events_are_read_one_by_one(target: TargetServer, http2: HTTP2Client) -> None:
    async with http2.sse(f"{target.url}/sse?n=3&every=1ms") as events:
        assert [event.data async for event in events] == ["0", "1", "2"]
    assert events.result.ok


async def test_compressed_bodies_and_heads_without_body(target: TargetServer, http2: HTTP2Client) -> None:
    assert (await http2.get(f"{target.url}/gzip")).json()["gzip"] is True
    head = await http2.head(f"{target.url}/?size=10")
    assert (head.content, head.headers["content-length"]) == (b"", "10")
    assert (await http2.get(f"{target.url}/?status=204")).content == b""


async def test_an_answer_whose_body_cannot_be_decompressed_is_a_failed_call() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        await peer.greet()
        while True:
            asked = await peer.hear(frames.HEADERS)
            cut = gzip.compress(b"all of it")[:-6]
            peer.say(head(asked.stream, extra=("content-encoding", "gzip")), data(asked.stream, cut))

    async with serving(talk) as place, client() as (http2, network):
        for _ in range(2):
            with pytest.raises(CallFailed) as failed:
                await http2.get(f"http://{place}/")
            assert failed.value.kind == "encoding"
        assert (network.sent, network.answered) == (2, 2)


async def test_a_call_that_the_server_resets_leaves_the_others_alone() -> None:
    async with TargetServer() as target, client() as (http2, network):
        slow = asyncio.ensure_future(http2.get(f"{target.url}/?delay=20ms"))
        with pytest.raises(CallFailed, match="CANCEL") as failed:
            await http2.post(f"{target.url}/reset")
        assert failed.value.kind == "reset"
        assert (await slow).ok
        assert target.counts().connections == 1
        assert (network.sent, network.answered, network.aborted) == (2, 1, 0)


async def test_a_connection_that_is_closed_fails_its_calls_and_the_next_call_opens_another() -> None:
    async with TargetServer() as target, client() as (http2, _):
        with pytest.raises(CallFailed, match="closed the connection") as failed:
            await http2.post(f"{target.url}/close")
        assert failed.value.kind == "closed"
        assert (await http2.get(f"{target.url}/")).opening is not None


@pytest.mark.parametrize(
    ("limits", "kind"), [(Timeouts(read=0.02), "read timeout"), (Timeouts(total=0.02), "total timeout")]
)
async def test_limits_end_a_call_and_not_its_connection(limits: Timeouts, kind: str) -> None:
    async with TargetServer() as target, client() as (http2, network):
        with pytest.raises(CallFailed) as failed:
            await http2.get(f"{target.url}/?delay=1h", timeout=limits)
        assert failed.value.kind == kind
        assert (await http2.get(f"{target.url}/")).opening is None
        assert (network.sent, network.answered, network.aborted) == (2, 1, 0)
        assert target.counts().abandoned == 1


async def test_a_stream_that_stops_ends_in_a_timeout() -> None:
    async with TargetServer() as target, client() as (http2, _):
        answer = await http2.get(f"{target.url}/slow-body?for=1h&n=2", stream=True, timeout=Timeouts(read=0.02))
        with pytest.raises(CallFailed) as failed:
            await answer.read()
        assert failed.value.kind == "read timeout"


async def test_a_stream_that_is_left_is_over() -> None:
    async with TargetServer() as target, client() as (http2, network):
        answer = await http2.get(f"{target.url}/sse?n=100&every=1ms", stream=True)
        async for _ in answer.chunks():
            break
        answer.leave()
        assert (await http2.get(f"{target.url}/")).opening is None
        assert (network.sent, network.answered, network.aborted) == (2, 2, 0)


async def test_calls_that_are_cancelled_or_closed_are_aborted() -> None:
    async with TargetServer() as target, client() as (http2, network):
        calls = [asyncio.ensure_future(http2.get(f"{target.url}/?delay=1h")) for _ in range(2)]
        while target.counts().under_way < 2:
            await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.wait(calls[:1])
        await http2.close()
        with pytest.raises(CallFailed, match="session was closed"):
            await calls[1]
        assert (network.sent, network.answered, network.aborted) == (2, 0, 2)


async def test_nobody_there_and_no_http2_there() -> None:
    async with client() as (http2, _):
        with pytest.raises(CallFailed) as failed:
            await asyncio.gather(*(http2.get("http://127.0.0.1:1/") for _ in range(3)))
        assert failed.value.kind == "refused"

    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(old) as place, client() as (http2, _):
        with pytest.raises(CallFailed, match=r"speaks HTTP/1\.1") as failed:
            await http2.get(f"http://{place}/")
        assert failed.value.kind == "protocol"


async def test_a_plain_call_through_a_proxy_is_refused() -> None:
    async with client(Network(proxy="http://127.0.0.1:3128")) as (http2, _):
        with pytest.raises(InvalidInput, match="https:// only"):
            await http2.get("http://127.0.0.1:8080/")


# a server that is told frame by frame what to say


def head(
    stream: int, status: str = "200", *, flags: int = frames.END_HEADERS, extra: tuple[str, str] | None = None
) -> bytes:
    block = hpack.Encoder().encode(
        [hpack.NeverIndexedHeaderTuple(":status", status), *([hpack.NeverIndexedHeaderTuple(*extra)] if extra else [])]
    )
    return frames.frame(frames.HEADERS, flags, stream, block)


def data(stream: int, body: bytes, *, flags: int = frames.END_STREAM) -> bytes:
    return frames.frame(frames.DATA, flags, stream, body)


def goaway(last: int, code: int = frames.NO_ERROR) -> bytes:
    return frames.frame(frames.GOAWAY, 0, 0, frames.number(last) + frames.number(code))


class Peer:
    """The server's side of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = frames.FrameReader()
        self._held: list[frames.Frame] = []

    async def greet(self, values: dict[int, int] | None = None) -> None:
        await self._reader.readexactly(len(frames.PREFACE))
        self.say(frames.settings(values or {}))

    def say(self, *told: bytes) -> None:
        self._writer.write(b"".join(told))

    async def hear(self, kind: int) -> frames.Frame:
        """The next frame of a kind; others are passed over."""
        while True:
            while self._held:
                found = self._held.pop(0)
                if found.kind == kind:
                    return found
            piece = await self._reader.read(65536)
            if not piece:
                raise EOFError
            self._held += self._frames.feed(piece)


async def test_a_goaway_lets_end_what_was_begun_and_sends_the_rest_elsewhere() -> None:
    connections = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        connections.append(peer)
        await peer.greet()
        if len(connections) == 1:
            for _ in range(2):
                await peer.hear(frames.HEADERS)
            peer.say(goaway(1), head(1), data(1, b"from the first"))
        else:
            asked = await peer.hear(frames.HEADERS)
            peer.say(head(asked.stream), data(asked.stream, b"from the second"))

    async with serving(talk) as place, client() as (http2, network):
        answers = await asyncio.gather(*(http2.post(f"http://{place}/{n}") for n in range(2)))
        assert [answer.content for answer in answers] == [b"from the first", b"from the second"]
        assert (network.sent, network.answered, network.resent) == (3, 2, 1)


@pytest.mark.parametrize("calls", [1, 3])
async def test_a_connection_that_ends_before_its_first_call_is_sent_fails_the_call_at_once(
    monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """The loop reads the end between the opening and the call that waits for it."""
    opened = HTTP2Connection.open

    async def open_and_lose(self: HTTP2Connection, limits: Timeouts) -> Opening:
        opening = await opened(self, limits)
        self._lost(CallFailed("closed", "the server reset the connection"))
        return opening

    monkeypatch.setattr(HTTP2Connection, "open", open_and_lose)
    async with TargetServer() as target, client() as (http2, network):
        failed = await asyncio.gather(*(http2.get(target.url) for _ in range(calls)), return_exceptions=True)
        assert [str(one) for one in failed] == ["the server reset the connection"] * calls
        assert (network.sent, network.answered, network.resent) == (0, 0, 0)


async def test_a_server_that_takes_no_calls_on_new_connections_is_not_asked_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = HTTP2Connection.open
    connections = []

    async def open_and_retire(self: HTTP2Connection, limits: Timeouts) -> Opening:
        connections.append(self)
        opening = await opened(self, limits)
        self._came(goaway(0))
        return opening

    monkeypatch.setattr(HTTP2Connection, "open", open_and_retire)
    async with TargetServer() as target, client() as (http2, _):
        with pytest.raises(CallFailed, match="accepts no calls") as failed:
            await http2.get(target.url)
    assert (failed.value.kind, len(connections)) == ("goaway", 5)


async def test_a_server_that_resets_each_connection_is_told_as_that() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(16)
        writer.transport.abort()

    async with serving(reset) as place, client() as (http2, _):
        for _ in range(20):
            with pytest.raises(CallFailed) as failed:
                await http2.get(f"http://{place}/", timeout=Timeouts(total=None, read=None))
            assert failed.value.kind == "closed"


async def test_a_call_that_was_refused_is_sent_again_and_not_for_ever() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        await peer.greet()
        while True:
            asked = await peer.hear(frames.HEADERS)
            peer.say(frames.frame(frames.RST_STREAM, 0, asked.stream, frames.number(frames.REFUSED_STREAM)))

    async with serving(talk) as place, client() as (http2, network):
        with pytest.raises(CallFailed) as failed:
            await http2.get(f"http://{place}/")
        assert failed.value.kind == "refused stream"
        assert (network.sent, network.resent) == (5, 4)


async def test_no_more_calls_are_under_way_than_the_server_takes() -> None:
    most = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most
        peer = Peer(reader, writer)
        await peer.greet({frames.MAX_CONCURRENT_STREAMS: 2})
        first = await peer.hear(frames.HEADERS)
        peer.say(head(first.stream), data(first.stream, b"ready"))
        under_way: set[int] = set()
        for _ in range(6):
            under_way.add((await peer.hear(frames.HEADERS)).stream)
            most = max(most, len(under_way))
            if len(under_way) == 2:
                for stream in under_way:
                    peer.say(head(stream), data(stream, b""))
                under_way.clear()

    async with serving(talk) as place, client() as (http2, _):
        await http2.get(f"http://{place}/first")
        answers = await asyncio.gather(*(http2.get(f"http://{place}/") for _ in range(6)))
        assert most == 2
        assert sum(answer.opening is not None and answer.opening.blocked > 0 for answer in answers) == 4


async def test_a_body_waits_for_the_window_of_the_server() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        await peer.greet({frames.INITIAL_WINDOW_SIZE: 10})
        asked = await peer.hear(frames.HEADERS)
        got = b""
        while True:
            piece = await peer.hear(frames.DATA)
            got += piece.payload
            if piece.ends:
                break
            if len(got) % 10 == 0:
                peer.say(frames.frame(frames.WINDOW_UPDATE, 0, asked.stream, frames.number(10)))
        peer.say(head(asked.stream), data(asked.stream, got))

    async with serving(talk) as place, client() as (http2, _):
        await asyncio.sleep(0)
        answer = await http2.post(f"http://{place}/", data=b"0123456789" * 3 + b"end")
        assert answer.content == b"0123456789" * 3 + b"end"


WRONG = {
    "half an answer": head(1, extra=("content-length", "10")) + data(1, b"short"),
    "a body before its head": data(1, b"?"),
    "no status": frames.frame(frames.HEADERS, frames.END_HEADERS, 1, hpack.Encoder().encode([("a", "b")])),
    "a table that we have not": frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xbe"),
    "a push": frames.frame(frames.PUSH_PROMISE, frames.END_HEADERS, 1, frames.number(2)),
    "half a head": head(1, flags=0) + data(1, b"?"),
    "an end without beginning": frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, b""),
    "too much padding": head(1) + frames.frame(frames.DATA, frames.PADDED, 1, b"\x09abc"),
    "settings cut off": frames.frame(frames.SETTINGS, 0, 0, b"\x00\x01"),
    "a reset cut off": frames.frame(frames.RST_STREAM, 0, 1, b"\x00"),
    "too long a frame": b"\xff\xff\xff" + bytes(6),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
async def test_what_breaks_the_protocol_fails_the_call_and_not_the_next(wrong: bytes) -> None:
    first = True

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal first
        peer = Peer(reader, writer)
        await peer.greet()
        wrong_now, first = first, False
        while True:
            asked = await peer.hear(frames.HEADERS)
            right = head(asked.stream) + data(asked.stream, b"right")
            peer.say(wrong if wrong_now and asked.stream == 1 else right)

    async with serving(talk) as place, client() as (http2, _):
        with pytest.raises(CallFailed) as failed:
            await http2.get(f"http://{place}/")
        assert failed.value.kind == "protocol"
        assert (await http2.get(f"http://{place}/")).content == b"right"


LONG = head(1, extra=("x-long", "y" * 50))
ANSWER = b"".join(
    (
        head(1, "103"),
        frames.frame(frames.HEADERS, frames.WITH_PRIORITY, 1, bytes(5) + LONG[9:20]),
        frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, LONG[20:]),
        frames.frame(frames.PING, 0, 0, b"12345678"),
        data(1, b"one ", flags=0),
        frames.frame(frames.DATA, frames.PADDED, 1, b"\x03two\x00\x00\x00"),
        frames.frame(99, 0, 0, b"unknown"),
        frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, b"\x00\x01a\x01b"),
    )
)


@settings(max_examples=25)
@given(cuts=st.lists(st.integers(0, len(ANSWER)), max_size=6).map(sorted))
def test_any_split_of_the_frames_gives_the_same_answer(cuts: list[int]) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        await peer.greet()
        await peer.hear(frames.HEADERS)
        for start, end in zip([0, *cuts], [*cuts, len(ANSWER)], strict=True):
            peer.say(ANSWER[start:end])
            await asyncio.sleep(0)

    async def answer() -> tuple[int, bytes, str]:
        async with serving(talk) as place, client() as (http2, _):
            found = await http2.get(f"http://{place}/")
            return found.status, found.content, found.headers["x-long"]

    assert asyncio.run(answer()) == (200, b"one two", "y" * 50)


async def test_calls_that_fail_or_are_aborted_leave_their_bytes() -> None:
    async with TargetServer() as target, client() as (http2, network):
        with pytest.raises(CallFailed) as failed:
            await http2.get(f"{target.url}/?delay=1h", timeout="50ms")
        call = asyncio.ensure_future(http2.get(f"{target.url}/?delay=1h"))
        while network.sent < 2:
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])

    assert failed.value.sent > 9
    assert (network.aborted, network.aborted_sent > 9) == (1, True)
