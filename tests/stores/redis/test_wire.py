"""One connection: answers in order, and what becomes of those who wait when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
from redis import exceptions as driver

from mainstay.stores.redis.address import parse
from mainstay.stores.redis.wire import RedisWire, connect

LONG_S = 60.0


@contextlib.asynccontextmanager
async def talking_to(*answers: bytes, patience_s: float = LONG_S) -> AsyncIterator[RedisWire]:
    """A wire to a server that says these pieces, one for each that it hears, then nothing more."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.read(1 << 16)
            writer.write(answer)
        with contextlib.suppress(ConnectionError):
            await reader.read()
            writer.close()
            await writer.wait_closed()
        over.set()

    over = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    wire = await connect(parse(f"redis://127.0.0.1:{port}", {}), ("127.0.0.1", port), patience_s=patience_s)
    try:
        yield wire
    finally:
        await wire.close()
        await over.wait()
        server.close()


async def test_answers_come_in_the_order_of_the_commands(redis_url: str) -> None:
    address = parse(redis_url.partition("?")[0], {})
    wire = await connect(address, (address.host, address.port), patience_s=LONG_S)
    texts = [f"{n}" * n for n in range(1, 200)]
    said = await asyncio.gather(*(wire.ask("ECHO", text) for text in texts))
    assert [each.decode() for each in said] == texts
    await wire.close()


async def test_an_answer_that_nobody_waits_for_any_more_is_not_given_to_the_next(redis_url: str) -> None:
    address = parse(redis_url.partition("?")[0], {})
    wire = await connect(address, (address.host, address.port), patience_s=LONG_S)
    first = asyncio.create_task(wire.ask("ECHO", "first"))
    await asyncio.sleep(0)
    first.cancel()
    assert await wire.ask("ECHO", "second") == b"second"
    assert first.cancelled()
    await wire.close()


async def test_a_refusal_is_raised_where_it_was_asked_for_and_the_wire_stays(redis_url: str) -> None:
    address = parse(redis_url.partition("?")[0], {})
    wire = await connect(address, (address.host, address.port), patience_s=LONG_S)
    with pytest.raises(driver.ResponseError, match="unknown command"):
        await wire.ask("NONSENSE")
    assert await wire.ask("ECHO", "still") == b"still"
    await wire.close()


async def test_when_the_server_is_silent_everybody_who_waits_hears_so() -> None:
    async with talking_to(patience_s=0.05) as wire:
        both = await asyncio.gather(wire.ask("PING"), wire.ask("PING"), return_exceptions=True)
        assert [type(each) for each in both] == [driver.TimeoutError] * 2
        assert both[0] is not both[1]
        assert not wire.is_open
        with pytest.raises(driver.ConnectionError):
            await wire.ask("PING")


async def test_what_is_no_answer_ends_the_wire() -> None:
    async with talking_to(b"nonsense\r\n") as wire:
        with pytest.raises(driver.ConnectionError):
            await wire.ask("PING")
        assert not wire.is_open


async def test_one_that_retires_gives_the_answers_it_owes(redis_url: str) -> None:
    address = parse(redis_url.partition("?")[0], {})
    wire = await connect(address, (address.host, address.port), patience_s=LONG_S)
    owed = asyncio.create_task(wire.ask("ECHO", "owed"))
    await asyncio.sleep(0)
    wire.retire()
    assert not wire.is_open
    assert await owed == b"owed"
    await wire.close()


async def test_whoever_waits_when_it_is_closed_gets_an_error() -> None:
    async with talking_to() as wire:
        waiting = asyncio.create_task(wire.ask("PING"))
        await asyncio.sleep(0)
        await wire.close()
        with pytest.raises(driver.ConnectionError):
            await waiting


async def test_one_that_is_closed_while_the_server_takes_nothing_is_gone_all_the_same() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        wire = await connect(parse(f"redis://127.0.0.1:{port}", {}), ("127.0.0.1", port), patience_s=LONG_S)
        waiting = asyncio.create_task(wire.ask("SET", "key", bytes(1 << 26)))
        await asyncio.sleep(0)
        await wire.close()
        with pytest.raises(driver.ConnectionError):
            await waiting
        async with asyncio.timeout(LONG_S):
            await wire._gone.wait()
