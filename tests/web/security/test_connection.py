"""Connections, on real sockets: what is too large, too slow, unread or not HTTP at all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mainstay.load.target.certificate import self_signed
from mainstay.web.security.limits import ConnectionLimits
from mainstay.web.server import WebServer, bound, make_server
from tests.web.security.doors import Door

HOST = "127.0.0.1"


class Wire:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes | str) -> None:
        self.writer.write(data.encode() if isinstance(data, str) else data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer, with its length known."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    async def problem(self) -> tuple[int, str]:
        status, headers, body = await self.answer()
        assert headers["content-type"] == "application/problem+json"
        assert headers["x-content-type-options"] == "nosniff"
        return status, json.loads(body)["type"]

    async def closed(self) -> bool:
        """Waits for the end; whatever comes before it is an error."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


class Place:
    """A server that listens in this process."""

    def __init__(self, server: WebServer, port: int, door: Door, context: ssl.SSLContext | None) -> None:
        self.server = server
        self.port = port
        self.door = door
        self._context = context
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, **options: Any) -> Wire:
        reader, writer = await asyncio.open_connection(HOST, self.port, ssl=self._context, **options)
        self._writers.append(writer)
        return Wire(reader, writer)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@contextlib.asynccontextmanager
async def listening(
    folder: Path, *, cert: Path | None = None, limits: ConnectionLimits | None = None, **options: Any
) -> AsyncIterator[Place]:
    door = Door(folder, asks=False, limits=limits, port=0, tls_cert=None if cert is None else str(cert), **options)
    context = None if cert is None else ssl.create_default_context(cafile=str(cert))
    started = asyncio.Event()
    with bound(door.options) as opened:
        port = opened.getsockname()[1]
        server = make_server(door.app, door.options, started=started.set)
        task = asyncio.create_task(server.serve(sockets=[opened]))
        await started.wait()
        place = Place(server, port, door, context)
        try:
            yield place
        finally:
            place.close()
            server.stop()
            await task


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def usual(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """One with the usual limits, for all that leaves it as it was."""
    async with listening(tmp_path_factory.mktemp("usual")) as place:
        yield place


shared = pytest.mark.asyncio(loop_scope="module")


def get(path: str = "/read", *more: str, host: str = HOST) -> str:
    return "\r\n".join([f"GET {path} HTTP/1.1", f"Host: {host}", *more, "", ""])


def post(length: int | None, *more: str, path: str = "/operate") -> str:
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return "\r\n".join([f"POST {path} HTTP/1.1", f"Host: {HOST}", size, *more, "", ""])


@shared
async def test_requests_are_answered_one_after_another_on_one_connection(usual: Place) -> None:
    wire = await usual.connect()
    for _ in range(3):
        await wire.send(get())
        status, headers, _ = await wire.answer()

        assert status == 200
        assert "server" not in headers


@shared
async def test_pipelined_requests_are_answered_in_order(usual: Place) -> None:
    wire = await usual.connect()
    await wire.send(get("/read") + get("/nothing") + post(2) + "ab")

    assert [(await wire.answer())[0] for _ in range(3)] == [200, 404, 200]


@shared
@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        (get("/" + "x" * 9000), (414, "url_too_long")),
        (get("/read?" + "x" * 9000), (414, "url_too_long")),
        (get("/read", "X: " + "x" * 40_000), (431, "headers_too_large")),
        (get("/read", *(f"X{n}: y" for n in range(5000))), (431, "headers_too_large")),
    ],
    ids=["path", "query", "one-header", "many-headers"],
)
async def test_a_request_with_too_large_a_head_is_refused(
    usual: Place, request_text: str, expected: tuple[int, str]
) -> None:
    wire = await usual.connect()
    await wire.send(request_text)

    assert await wire.problem() == expected
    assert await wire.closed()


@shared
@pytest.mark.parametrize("start", ["GET /", f"GET / HTTP/1.1\r\nHost: {HOST}\r\nX: "], ids=["url", "header"])
async def test_a_head_that_never_ends_is_refused_at_its_limit(usual: Place, start: str) -> None:
    wire = await usual.connect()
    await wire.send(start)
    await wire.send("x" * 33_000)

    assert await wire.problem() == (431, "headers_too_large")
    assert await wire.closed()


@shared
async def test_a_body_beside_small_headers_does_not_count_as_head(usual: Place) -> None:
    wire = await usual.connect()
    for _ in range(2):
        await wire.send(post(200_000) + "x" * 200_000)
        assert (await wire.answer())[0] == 200


async def test_who_says_nothing_is_sent_away(tmp_path: Path) -> None:
    async with listening(tmp_path, limits=ConnectionLimits(head_s=0.05)) as place:
        assert await (await place.connect()).closed()


async def test_a_head_that_drips_is_given_up_however_steadily(tmp_path: Path) -> None:
    """Slow loris: each byte in time, and never an end."""
    async with listening(tmp_path, limits=ConnectionLimits(head_s=0.3)) as place:
        wire = await place.connect()
        await wire.send(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n")

        async def drip() -> None:
            while True:
                await wire.send("X: y\r\n")
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        try:
            assert await wire.problem() == (408, "too_slow")
        finally:
            dripping.cancel()
            await asyncio.wait({dripping})


async def test_the_second_request_of_a_connection_has_to_be_told_in_time_too(tmp_path: Path) -> None:
    async with listening(tmp_path, limits=ConnectionLimits(head_s=0.3)) as place:
        wire = await place.connect()
        await wire.send(get())
        assert (await wire.answer())[0] == 200
        await wire.send("GET / HT")

        assert await wire.problem() == (408, "too_slow")
        assert await wire.closed()


async def test_blank_lines_do_not_keep_a_connection(tmp_path: Path) -> None:
    """They begin no request, and yet they are no silence."""
    async with listening(tmp_path, limits=ConnectionLimits(head_s=0.3)) as place:
        wire = await place.connect()
        await wire.send(get())
        assert (await wire.answer())[0] == 200
        await wire.send("\r\n\r\n")

        assert await wire.closed()


async def test_a_body_that_drips_is_given_up(tmp_path: Path) -> None:
    async with listening(tmp_path, limits=ConnectionLimits(body_s=0.05)) as place:
        wire = await place.connect()
        await wire.send(post(100) + "x")

        assert await wire.problem() == (408, "too_slow")
        assert await wire.closed()


async def test_a_body_that_nobody_reads_does_not_keep_a_connection(tmp_path: Path) -> None:
    async with listening(tmp_path, limits=ConnectionLimits(head_s=0.3)) as place:
        wire = await place.connect()
        await wire.send(post(100, path="/unread"))
        assert (await wire.answer())[0] == 200
        await wire.send("x")

        assert await wire.closed()


async def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    async with listening(tmp_path, body_limit=1000) as place:
        wire = await place.connect()
        await wire.send(post(10_000_000, "Expect: 100-continue"))

        assert await wire.problem() == (413, "body_too_large")


async def test_a_body_in_chunks_is_refused_when_it_has_passed_the_limit(tmp_path: Path) -> None:
    async with listening(tmp_path, body_limit=1000) as place:
        wire = await place.connect()
        await wire.send(post(None))
        for _ in range(11):
            await wire.send("64\r\n" + "x" * 100 + "\r\n")

        assert await wire.problem() == (413, "body_too_large")


async def test_whoever_sends_on_after_a_refusal_still_gets_to_read_it(tmp_path: Path) -> None:
    async with listening(tmp_path, body_limit=1000) as place:
        wire = await place.connect()
        await wire.send(post(3_000_000))
        await wire.send("x" * 3_000_000)
        assert await wire.problem() == (413, "body_too_large")

        await wire.send(get())
        assert (await wire.answer())[0] == 200


async def test_who_reads_nothing_is_cut_off(tmp_path: Path) -> None:
    async with listening(tmp_path, limits=ConnectionLimits(unread_s=0.05)) as place:
        wire = await place.connect(limit=1024)
        await wire.send(get("/flood"))
        await wire.reader.readuntil(b"\r\n\r\n")
        [task] = place.server.server_state.tasks

        await asyncio.wait({task})
        assert place.server.server_state.connections == set()


HOSTILE = {
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00",
    "binary": bytes(range(256)),
    "no-version": b"GET /\r\n\r\n",
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "method": b"BREW / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "nul": b"GET /\x00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "nul-header": b"GET /read HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x00b\r\n\r\n",
    "two-lengths": b"POST /operate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "bad-length": b"POST /operate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
    "huge-length": b"POST /operate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
    "smuggling": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
    "bad-chunk": b"POST /operate HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    "no-host": b"GET /read HTTP/1.1\r\n\r\n",
    "two-hosts": b"GET /read HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
    "folded": b"GET /read HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\r\n b\r\n\r\n",
    "space-colon": b"GET /read HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n",
    "connect": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "other-server": b"GET http://evil.example/read HTTP/1.1\r\nHost: evil.example\r\n\r\n",
}


@shared
@pytest.mark.parametrize("name", HOSTILE)
async def test_what_is_no_request_of_ours_gets_a_plain_refusal(usual: Place, name: str) -> None:
    wire = await usual.connect()
    await wire.send(HOSTILE[name])
    wire.writer.write_eof()

    status, code = await wire.problem()

    assert 400 <= status < 500
    assert code in ("bad_request", "wrong_host", "bad_host", "body_too_large", "not_found", "method_not_allowed")


@shared
async def test_no_damage_to_a_request_is_a_mistake_of_the_server(usual: Place) -> None:
    """Requests with bytes changed, left out and doubled at random: an answer of 4xx, a good one, or silence."""
    chance = random.Random(7)
    whole = [get(), post(5) + "hello", post(None) + "5\r\nhello\r\n0\r\n\r\n", get("/login?next=%2Fjobs")]
    seen = set()
    for _ in range(150):
        data = bytearray(chance.choice(whole).encode())
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            match chance.randrange(3):
                case 0:
                    data[at] = chance.randrange(256)
                case 1:
                    del data[at]
                case _:
                    data[at:at] = data[at : at + 20]
        wire = await usual.connect()
        await wire.send(bytes(data))
        wire.writer.write_eof()
        try:
            said = await wire.reader.read()
        except ConnectionResetError:
            continue
        finally:
            wire.writer.close()
        seen |= {int(status) for status in re.findall(rb"^HTTP/1.1 (\d+)", said, re.MULTILINE)}
        assert b"Traceback" not in said

    assert {200, 400} <= seen
    assert all(status < 500 for status in seen)


@shared
async def test_an_upgrade_that_there_is_not_is_answered_as_if_it_were_not_asked_for(
    usual: Place, caplog: pytest.LogCaptureFixture
) -> None:
    wire = await usual.connect()
    await wire.send(get("/read", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x"))

    assert (await wire.answer())[0] == 200
    assert "install" not in caplog.text


@shared
async def test_what_breaks_off_in_the_middle_of_an_answer_is_only_closed(usual: Place) -> None:
    wire = await usual.connect()
    await wire.send(get("/live"))
    await wire.reader.readuntil(b"data: here\n\n")
    await wire.send(b"\x00\x01\x02 what?\r\n\r\n")

    assert b"HTTP/1.1" not in await wire.reader.read()


@pytest.mark.parametrize("insecure", [True, False], ids=["in-front", "nobody"])
async def test_what_a_proxy_says_is_believed_only_if_there_is_said_to_be_one(tmp_path: Path, insecure: bool) -> None:
    async with listening(tmp_path, insecure=insecure) as place:
        wire = await place.connect()
        await wire.send(get("/read", "X-Forwarded-Proto: https", "X-Forwarded-For: 192.0.2.9"))
        _, headers, _ = await wire.answer()

        assert ("strict-transport-security" in headers) is insecure


async def test_there_are_only_so_many_connections(tmp_path: Path) -> None:
    async with listening(tmp_path, limits=ConnectionLimits(connections=2), streams=1) as place:
        for _ in range(3):
            await (await place.connect()).send("GET")
        wire = await place.connect()
        await wire.send(get())

        status, headers, body = await wire.answer()

        assert (status, json.loads(body)["type"]) == (503, "too_many_connections")
        assert int(headers["retry-after"]) > 0
        assert headers["content-type"] == "application/problem+json"
        assert headers["x-content-type-options"] == "nosniff"
        assert await wire.closed()


async def test_one_address_cannot_take_the_connections_of_all(tmp_path: Path) -> None:
    async with listening(tmp_path, limits=ConnectionLimits(connections=50, connections_each=3), streams=1) as place:
        greedy = [await place.connect() for _ in range(60)]
        other = await place.connect(local_addr=("127.0.0.2", 0))
        await other.send(get())
        assert (await other.answer())[0] == 200

        assert await greedy[-1].problem() == (429, "too_many_connections")
        await greedy[0].send(get())
        assert (await greedy[0].answer())[0] == 200
        # when one leaves, there is room for another
        greedy[1].writer.close()
        status = 0
        while status != 200:
            again = await place.connect()
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await again.send(get())
                status = (await again.answer())[0]


async def test_behind_a_proxy_all_connections_are_of_one_address(tmp_path: Path) -> None:
    limits = ConnectionLimits(connections=50, connections_each=1)
    async with listening(tmp_path, limits=limits, streams=1, insecure=True) as place:
        for wire in [await place.connect() for _ in range(5)]:
            await wire.send(get())
            assert (await wire.answer())[0] == 200


async def test_whoever_asks_whether_it_lives_is_answered_when_there_is_no_room(tmp_path: Path) -> None:
    async with listening(tmp_path, limits=ConnectionLimits(connections=0), streams=1) as place:
        full = await place.connect()
        await full.send(get())
        assert (await full.answer())[0] == 200
        wire = await place.connect()
        await wire.send(get("/livez"))

        status, headers, _ = await wire.answer()

        assert (status, headers["connection"]) == (404, "close"), "this small site has no such page, and was asked"
        assert await wire.closed()


async def test_streams_end_and_answers_are_finished_when_the_server_stops(tmp_path: Path) -> None:
    async with listening(tmp_path) as place:
        live, slow = await place.connect(), await place.connect()
        await live.send(get("/live"))
        await live.reader.readuntil(b"data: here\n\n")
        await slow.send(post(4) + "ab")

        await _asked(place, 2)
        place.server.stop()
        assert (await live.reader.read()).endswith(b"0\r\n\r\n")
        await slow.send("cd")

        status, _, body = await slow.answer()
        assert (status, json.loads(body)["size"]) == (200, 4)
        assert await slow.closed()


async def _asked(place: Place, n: int) -> None:
    """Once the app has begun to answer so many: of that no event tells."""
    while len(place.server.server_state.tasks) < n:
        await asyncio.sleep(0.001)


async def test_what_is_not_finished_within_the_grace_is_given_up(tmp_path: Path) -> None:
    async with listening(tmp_path, limits=ConnectionLimits(grace_s=0)) as place:
        wire = await place.connect()
        await wire.send(post(4) + "ab")
        await _asked(place, 1)
        [task] = place.server.server_state.tasks

        place.server.stop()

        await asyncio.wait({task})


async def test_the_second_stop_waits_for_nobody(tmp_path: Path) -> None:
    async with listening(tmp_path, limits=ConnectionLimits(grace_s=600)) as place:
        wire = await place.connect()
        await wire.send(post(4) + "ab")
        await _asked(place, 1)
        place.server.stop()
        place.server.stop()

        assert await wire.closed()


@pytest.fixture(scope="module")
def cert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(self_signed(tmp_path_factory.mktemp("tls"), "127.0.0.1"))


async def test_tls_is_spoken_with_the_certificate_that_was_named(tmp_path: Path, cert: Path) -> None:
    async with listening(tmp_path, cert=cert) as place:
        wire = await place.connect()
        await wire.send(get())
        status, headers, _ = await wire.answer()

        assert status == 200
        assert headers["strict-transport-security"]
        protocol = wire.writer.get_extra_info("ssl_object").version()
        assert protocol in ("TLSv1.2", "TLSv1.3")


async def test_who_speaks_no_tls_or_an_old_one_gets_no_answer(tmp_path: Path, cert: Path) -> None:
    async with listening(tmp_path, cert=cert) as place:
        reader, writer = await asyncio.open_connection(HOST, place.port)
        writer.write(get().encode())
        with contextlib.suppress(ConnectionResetError):
            assert b"200" not in await reader.read()
        writer.close()

        old = ssl.create_default_context(cafile=str(cert))
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            await asyncio.open_connection(HOST, place.port, ssl=old)
