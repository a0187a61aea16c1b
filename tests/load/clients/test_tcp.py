"""Raw TCP against the target's echo, and against servers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings, strategies as st

from mainstay.errors import CallFailed, InvalidInput
from mainstay.load.clients.network import Network, Timeouts, Tls
from mainstay.load.clients.tcp import TCPClient
from mainstay.load.clients.transport import DirectTransport
from mainstay.load.target import TargetOptions, TargetServer
from tests.load.clients.serving import serving


@contextlib.asynccontextmanager
async def client(network: Network | None = None) -> AsyncIterator[tuple[TCPClient, Network]]:
    network = network or Network()
    made = TCPClient(network)
    try:
        yield made, network
    finally:
        await made.close()


async def test_a_call_is_answered_up_to_its_delimiter_and_the_connection_is_kept() -> None:
    async with TargetServer(TargetOptions(tcp_port=0)) as target, client() as (tcp, network):
        first = await tcp.bidirectional(target.tcp_url, "ping\n", until=b"\n")
        second = await tcp.bidirectional(target.tcp_url, {"n": 1}, size=7)
        assert (first.content, second.json()) == (b"ping\n", {"n": 1})
        assert (first.sent, first.received, first.ok) == (5, 5, True)
        assert first.opening is not None
        assert second.opening is None
        assert (network.sent, network.answered, network.aborted) == (2, 2, 0)
        assert target.counts().connections == 1


async def test_the_times_of_a_call_are_in_order_and_contain_the_delay() -> None:
    async with TargetServer(TargetOptions(tcp_port=0, latency="5ms")) as target, client() as (tcp, _):
        result = await tcp.bidirectional(target.tcp_url, b"x")
        assert result.started <= result.written <= result.first <= result.ended
        assert result.ended - result.written >= 0.005


async def test_what_was_sent_may_be_received_by_another_call() -> None:
    async with TargetServer(TargetOptions(tcp_port=0)) as target, client() as (tcp, _):
        sent = await tcp.send(target.tcp_url, b"one\ntwo\n")
        assert (sent.sent, sent.content) == (8, b"")
        answers = [await tcp.receive(target.tcp_url, until="\n") for _ in range(2)]
        assert [answer.text() for answer in answers] == ["one\n", "two\n"]


async def test_calls_at_the_same_time_have_connections_of_their_own() -> None:
    async with TargetServer(TargetOptions(tcp_port=0, latency="2ms")) as target, client() as (tcp, _):
        words = [f"word {n}\n" for n in range(5)]
        answers = await asyncio.gather(*(tcp.bidirectional(target.tcp_url, word, until="\n") for word in words))
        assert [answer.text() for answer in answers] == words
        assert target.counts().connections == 5


async def test_a_connection_of_ones_own_is_closed_at_the_end_of_its_block() -> None:
    async with TargetServer(TargetOptions(tcp_port=0)) as target, client() as (tcp, _):
        async with tcp.connect(target.tcp_url) as connection:
            await connection.send(b"hello")
            assert (await connection.receive(size=5)).content == b"hello"
            assert (await connection.bidirectional(b"again")).content == b"again"
        with pytest.raises(CallFailed, match="the client closed") as failed:
            await connection.send(b"x")
        assert failed.value.kind == "closed"


async def test_tls_is_verified_unless_told_otherwise() -> None:
    async with TargetServer(TargetOptions(tcp_port=0, tls=True)) as target:
        async with client(Network(tls=Tls(ca=target.certificate))) as (tcp, _):
            result = await tcp.bidirectional(target.tcp_url, b"secret")
            assert result.content == b"secret"
            assert result.opening is not None
            assert result.opening.tls > 0
        async with client() as (tcp, _):
            with pytest.raises(CallFailed, match="is not trusted") as failed:
                await tcp.bidirectional(target.tcp_url, b"secret")
            assert failed.value.kind == "tls"


async def test_megabytes_go_out_and_come_back() -> None:
    options = TargetOptions(tcp_port=0, tls=True)
    async with TargetServer(options) as target, client(Network(tls=Tls(ca=target.certificate))) as (tcp, _):
        data = bytes(range(256)) * 20_000
        result = await tcp.bidirectional(target.tcp_url, data, size=len(data))
        assert result.content == data
        assert result.written > result.started


async def test_nobody_there_is_refused() -> None:
    async with client() as (tcp, network):
        with pytest.raises(CallFailed, match="refused the connection") as failed:
            await tcp.send("tcp://127.0.0.1:1", b"x")
        assert failed.value.kind == "refused"
        assert network.sent == 0


async def test_a_server_that_says_nothing_ends_in_a_read_timeout_and_a_new_connection() -> None:
    async def silent_at_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline() == b"speak\n":
            writer.write(b"fine\n")

    limits = Timeouts(read=0.05)
    async with serving(silent_at_first) as place, client() as (tcp, network):
        with pytest.raises(CallFailed, match="within 0.05 s") as failed:
            await tcp.bidirectional(f"tcp://{place}", b"hush\n", until=b"\n", timeout=limits)
        assert failed.value.kind == "read timeout"
        assert (await tcp.bidirectional(f"tcp://{place}", b"speak\n", until=b"\n")).content == b"fine\n"
        assert (network.sent, network.answered, network.aborted) == (2, 1, 0)


async def test_a_server_that_does_not_read_ends_in_a_write_timeout() -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]

    async with serving(deaf) as place, client() as (tcp, _):
        with pytest.raises(CallFailed) as failed:
            await tcp.send(f"tcp://{place}", bytes(20_000_000), timeout=Timeouts(write=0.05))
        assert failed.value.kind == "write timeout"


async def test_a_server_that_drips_ends_in_a_total_timeout() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(b".")
                await writer.drain()
                await asyncio.sleep(0.01)

    async with serving(drip) as place, client() as (tcp, _):
        with pytest.raises(CallFailed) as failed:
            await tcp.bidirectional(f"tcp://{place}", b"x", until=b"\n", timeout="100ms")
        assert failed.value.kind == "total timeout"


async def test_an_answer_that_is_cut_off_is_a_closed_connection() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"half an ans")
        writer.close()

    async with serving(cut) as place, client() as (tcp, network):
        with pytest.raises(CallFailed, match="closed the connection") as failed:
            await tcp.bidirectional(f"tcp://{place}", b"x\n", until=b"\n")
        assert failed.value.kind == "closed"
        assert (network.sent, network.answered, network.aborted) == (1, 0, 0)


async def test_a_call_that_is_cancelled_is_aborted_and_its_connection_gone() -> None:
    async with TargetServer(TargetOptions(tcp_port=0, latency="1h")) as target, client() as (tcp, network):
        call = asyncio.ensure_future(tcp.bidirectional(target.tcp_url, b"x"))
        while not target.counts().received:
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (network.sent, network.answered, network.aborted) == (1, 0, 1)


async def test_closing_the_session_gives_up_what_is_under_way() -> None:
    async with TargetServer(TargetOptions(tcp_port=0, latency="1h")) as target, client() as (tcp, network):
        call = asyncio.ensure_future(tcp.bidirectional(target.tcp_url, b"x"))
        while not target.counts().received:
            await asyncio.sleep(0)
        await tcp.close()
        with pytest.raises(CallFailed):
            await call
        assert (network.sent, network.answered, network.aborted) == (1, 0, 1)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://127.0.0.1:9000/", {}),
        ("tcp://127.0.0.1", {}),
        ("tcp://127.0.0.1:9000", {"until": b"\n", "size": 3}),
        ("tcp://127.0.0.1:9000", {"size": -3}),
        ("tcp://127.0.0.1:9000", {"timeout": 0}),
    ],
)
async def test_what_makes_no_sense_is_refused(url: str, options: dict[str, object]) -> None:
    async with client() as (tcp, _):
        with pytest.raises(InvalidInput):
            await tcp.bidirectional(url, b"x", **options)  # type: ignore[arg-type]


@settings(max_examples=30)
@given(
    words=st.lists(st.binary(min_size=1, max_size=20).map(bytes.hex).map(str.encode), min_size=1, max_size=5),
    cuts=st.lists(st.integers(0, 100), max_size=4).map(sorted),
)
def test_any_split_of_a_stream_gives_the_same_messages(words: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(word + b"\n" for word in words)

    async def in_pieces(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            writer.write(stream[start:end])
            await writer.drain()
            await asyncio.sleep(0)

    async def heard() -> list[bytes]:
        async with serving(in_pieces) as place, client() as (tcp, _):
            return [(await tcp.receive(f"tcp://{place}", until=b"\n")).content for _ in words]

    assert asyncio.run(heard()) == [word + b"\n" for word in words]


async def test_bytes_that_came_before_a_call_are_not_its_answer() -> None:
    async def chatty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line + b"and more\n")

    async with serving(chatty) as place, client() as (tcp, network):
        url = f"tcp://{place}"
        answers = [(await tcp.bidirectional(url, b"%d\n" % n, until=b"\n")).content for n in range(3)]
        assert answers == [b"0\n", b"1\n", b"2\n"]
        assert (await tcp.receive(url, until=b"\n")).content == b"and more\n"
        assert (network.sent, network.answered, network.unexpected) == (3, 3, 2)


async def test_bytes_that_the_loop_has_not_read_yet_are_not_the_answer() -> None:
    async with TargetServer(TargetOptions(tcp_port=0)) as target, client() as (tcp, network):
        async with tcp.connect(target.tcp_url) as connection:
            await connection.bidirectional(b"one", size=3)
            theirs, ours = socket.socketpair()
            with theirs:
                ours.setblocking(False)
                assert connection._transport is not None
                connection._transport.close()
                connection._transport = DirectTransport(
                    ours,
                    what="test",
                    on_data=connection._received,
                    on_end=connection._over,
                    on_written=connection._written,
                )
                theirs.send(b"early")
                call = asyncio.ensure_future(connection.bidirectional(b"two", until=b"\n"))
                await asyncio.sleep(0)
                theirs.send(b"late\n")
                assert (await call).content == b"late\n"
        assert network.unexpected == 1


async def test_a_connection_that_ended_before_its_first_call_takes_no_data() -> None:
    async def gone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with serving(gone) as place, client() as (tcp, network):
        async with tcp.connect(f"tcp://{place}") as connection:
            while connection.usable:
                await asyncio.sleep(0)
            with pytest.raises(CallFailed, match="closed the connection"):
                await connection.send(b"into the void")
        assert network.sent == 0


async def test_the_beginning_of_an_answer_is_not_unexpected() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"no line")
        writer.close()

    async with serving(cut) as place, client() as (tcp, network):
        with pytest.raises(CallFailed, match="closed the connection"):
            await tcp.bidirectional(f"tcp://{place}", b"x\n", until=b"\n")
        assert network.unexpected == 0


async def test_a_call_that_fails_or_is_aborted_leaves_its_bytes() -> None:
    heard = asyncio.Event()

    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readexactly(5) == b"close":
            writer.write(b"half")
        else:
            heard.set()
            await reader.read()
        writer.close()

    listening = await asyncio.start_server(half, "127.0.0.1", 0)
    url = f"tcp://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening, client() as (tcp, network):
        with pytest.raises(CallFailed) as failed:
            await tcp.bidirectional(url, b"close", size=9)
        call = asyncio.ensure_future(tcp.bidirectional(url, b"waits", size=9))
        await heard.wait()
        call.cancel()
        await asyncio.wait([call])

    assert (failed.value.sent, failed.value.received) == (5, 4)
    assert (network.aborted, network.aborted_sent, network.aborted_received) == (1, 5, 0)
