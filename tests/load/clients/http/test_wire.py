"""Answers as they come over the wire: in any pieces, complete or not, well formed or hostile."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import socket
import time
import zlib

import pytest
import uvloop
import zstandard
from hypothesis import given, settings, strategies as st

from mainstay.errors import CallFailed
from mainstay.load.clients.http import HTTPClient, HTTPResponse
from mainstay.load.clients.http.calls import HTTPCall
from mainstay.load.clients.http.connection import HTTP1Connection
from mainstay.load.clients.http.pool import Pool
from mainstay.load.clients.network import Network, Timeouts
from mainstay.load.prepared import split
from tests.load.clients.http.scripted import OK, Heard, Talk, serving

_now = time.perf_counter
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n"
    b"5\r\nhello\r\n10;ext=1\r\n, this is a test\r\n1\r\n!\r\n0\r\nX-Trailer: 1\r\n\r\n"
)
ANSWERS = [
    (OK, b"ok"),
    (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
    (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
    (CHUNKED, b"hello, this is a test!"),
    (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n", b""),
    (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nold", b"old"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    (b"HTTP/1.1 200\r\nContent-Length: 4\r\nSet-Cookie: a=1\r\n\r\n\r\n\r\n", b"\r\n\r\n"),
]


async def answer_in(pieces: list[bytes], *, closes: bool = False, method: str = "GET") -> HTTPResponse:
    """What a call makes of pieces that come one by one."""
    network = Network()
    client = HTTPClient(network)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    pool = Pool("http://127.0.0.1:1")
    pool.open = 1
    connection = HTTP1Connection(ours, pool=pool, owner=client, shared=client._shared)
    call = connection.start(HTTPCall(method, split("http://127.0.0.1:1/"), limits=Timeouts()), _now())
    try:
        for piece in [*pieces, *([b""] if closes else [])]:
            connection.take(piece, _now())
        assert call.done(), "there was an end to the answer, and it was not seen"
        return await call
    finally:
        connection.give_up()
        theirs.close()


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted({edge for edge in at if 0 < edge < len(data)}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@settings(max_examples=50)
@given(st.sampled_from(ANSWERS), st.lists(st.integers(1, 200), max_size=12))
def test_an_answer_is_the_same_in_whatever_pieces_it_comes(answer: tuple[bytes, bytes], at: list[int]) -> None:
    raw, body = answer
    whole = asyncio.run(answer_in([raw]))
    pieces = asyncio.run(answer_in(cut(raw, at)))

    for r in (whole, pieces):
        assert (r.content, r.received) == (body, len(raw))
    assert (pieces.status, dict(pieces.headers)) == (whole.status, dict(whole.headers))


@pytest.mark.parametrize(("raw", "body"), ANSWERS)
async def test_an_answer_may_come_byte_by_byte(raw: bytes, body: bytes) -> None:
    assert (await answer_in([bytes([byte]) for byte in raw])).content == body


@pytest.mark.parametrize(("raw", "body"), ANSWERS)
async def test_an_answer_that_ends_early_is_no_answer_wherever_it_ends(raw: bytes, body: bytes) -> None:
    for end in range(len(raw)):
        with pytest.raises(CallFailed) as failed:
            await answer_in([raw[:end]] if end else [], closes=True)
        assert failed.value.kind == "closed", end


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    r = await answer_in([head + b"some ", b"text"], closes=True)

    assert r.content == b"some text"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP/1"),
        (b"HTTX", "not HTTP/1"),
        (b"HTTP/1.1 nonsense\r\n\r\n", "not HTTP/1"),
        (b"HTTP/3.7 200 OK\r\n\r\n", "not HTTP/1"),
        (b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", "LF only"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "not HTTP/1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", "not HTTP/1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok", "not HTTP/1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "not HTTP/1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", "not HTTP/1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok", "not HTTP/1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: rot13\r\n\r\n", "rot13"),
        (b"HTTP/1.1 200 OK\r\nBad Header: 1\r\n\r\n", "not HTTP/1"),
        (OK + b"and more", "more than the announced response"),
        (OK + OK, "more than the announced response"),
        (CHUNKED + b"x", "more than the announced response"),
        (b"HTTP/1.1 204 No Content\r\n\r\nbody", "more than the announced response"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "is not the start or end of a chunk"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n", "is not the start or end of a chunk"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokX\r\n", "is not the start or end of a chunk"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
            "is not the start or end of a chunk",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 20_000,
            "is not the start or end of a chunk",
        ),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, "larger than 64 KB"),
    ],
)
async def test_what_is_not_http_fails_the_call_and_says_so(raw: bytes, said: str) -> None:
    with pytest.raises(CallFailed, match=said) as failed:
        await answer_in([raw[at : at + 16384] for at in range(0, len(raw), 16384)])

    assert failed.value.kind == "protocol"


async def test_bytes_that_nobody_asked_for_close_an_idle_connection(http: HTTPClient) -> None:
    said = asyncio.Event()

    async def answer(heard: Heard, talk: Talk) -> bytes | None:
        if heard.connection == 2:
            return OK
        await talk.say(OK)
        await said.wait()
        await talk.say(b"what was that?")
        await talk.gone()
        return None

    async with serving(answer) as server:
        await http.get(server.url)
        connection = next(iter(http._shared.connections))
        said.set()
        while not connection.closed:
            await asyncio.sleep(0)
        assert (await http.get(server.url)).opening is not None


def _deflated(data: bytes) -> bytes:
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return raw.compress(data) + raw.flush()


TEXT = b"the same again and again " * 1000


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(TEXT)),
        ("X-GZIP", gzip.compress(TEXT)),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", _deflated(TEXT)),
        ("zstd", zstandard.compress(TEXT)),
        ("gzip, zstd", zstandard.compress(gzip.compress(TEXT))),
        ("identity", TEXT),
    ],
    ids=["gzip", "x-gzip", "deflate", "raw-deflate", "zstd", "both", "identity"],
)
async def test_a_compressed_body_is_read_as_it_was(http: HTTPClient, encoding: str, body: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (encoding.encode(), len(body))
    async with serving(head + body) as server:
        r = await http.get(server.url)
        streamed = await http.get(server.url, stream=True)
        assert await streamed.read() == TEXT

    assert r.content == TEXT
    assert r.received == streamed.received == len(head) + len(body)
    assert "gzip" in server.heard[0].headers["accept-encoding"]


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        (b"gzip", b"not gzip"),
        (b"gzip", gzip.compress(TEXT)[:-20]),
        (b"gzip", gzip.compress(TEXT) + gzip.compress(TEXT)[:-20]),
        (b"zstd", zstandard.compress(TEXT)[:-5]),
        (b"deflate", zlib.compress(TEXT)[:-5]),
    ],
    ids=["gzip", "gzip-half", "second-half", "zstd-half", "deflate-half"],
)
async def test_an_answer_whose_body_cannot_be_decompressed_is_a_failed_call(
    http: HTTPClient, network: Network, encoding: bytes, body: bytes
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (encoding, len(body))
    async with serving(head + body) as server:
        with pytest.raises(CallFailed, match=r"http://127.*cannot be decompressed") as failed:
            await http.get(server.url)
        streamed = await http.get(server.url, stream=True)
        with pytest.raises(CallFailed, match="cannot be decompressed"):
            await streamed.read()

    assert failed.value.kind == "encoding"
    assert (network.sent, network.answered, server.connections) == (2, 2, 1)


async def test_a_status_that_fails_a_call_is_told_rather_than_its_body(http: HTTPClient) -> None:
    async with serving(b"HTTP/1.1 500 Oops\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx") as server:
        assert (await http.get(server.url)).failure == "http 500"


async def test_a_body_of_several_members_is_read_to_its_end(http: HTTPClient) -> None:
    for encoding, body in (
        ("gzip", gzip.compress(TEXT) + gzip.compress(TEXT)),
        ("gzip", gzip.compress(TEXT + TEXT) + b"\0\0"),
        ("zstd", zstandard.compress(TEXT) + zstandard.compress(TEXT)),
    ):
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        async with serving(head + body) as server:
            assert (await http.get(server.url)).content == TEXT + TEXT
            assert await (await http.get(server.url, stream=True)).read() == TEXT + TEXT


async def test_an_encoding_that_is_not_known_fails_where_the_body_is_read(http: HTTPClient) -> None:
    encoding, body = b"rot13", b"x"
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (encoding, len(body))
    async with serving(head + body) as server:
        r = await http.get(server.url)
        streamed = await http.get(server.url, stream=True)
        with pytest.raises(CallFailed) as failed:
            await streamed.read()

    assert r.ok
    assert failed.value.kind == "encoding"
    with pytest.raises(CallFailed, match="body"):
        _ = r.content


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_both_loops_will_do(new_loop) -> None:
    async def answer(heard: Heard, talk: Talk) -> bytes:
        return CHUNKED if heard.path == "/chunked" else OK

    async def calls() -> None:
        network = Network()
        clients = [HTTPClient(network) for _ in range(10)]
        async with serving(answer) as server:
            for path in ("/", "/chunked", "/") * 10:
                answers = await asyncio.gather(*(client.get(server.url + path) for client in clients))
                assert {r.status for r in answers} == {200}
            large = await clients[0].post(server.url, data=bytes(5_000_000))
            assert large.ok
            assert len(server.heard[-1].body) == 5_000_000
            await asyncio.gather(*(client.close() for client in clients))
        assert server.connections == 10
        assert network.sent == network.answered == 301

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(calls())
