"""Answers that wait for the server's disk (WAITAOF).

The command is of Redis 7.2 and of Valkey. A server of this machine may be older, so a proxy that speaks the protocol
stands before it: it says that it is 7.2, answers WAITAOF itself, and passes on all else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import hiredis
import pytest

from mainstay.errors import InvalidInput, StoreUnavailable
from mainstay.stores import open_store
from mainstay.stores.durability import Durability
from mainstay.stores.redis import server_check
from servers import Redis
from tests.conformance.world import World


class Newer:
    """The proxy. `forced` is its answer to WAITAOF; `asked` are the commands of each client, in order."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.forced: bytes = b"*2\r\n:1\r\n:0\r\n"
        self.cut_next = False
        self.asked: list[list[list[bytes]]] = []
        self.server: asyncio.Server | None = None

    async def start(self) -> str:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"redis://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self.server is not None
        self.server.close()

    def waits(self) -> list[list[bytes]]:
        return [command for client in self.asked for command in client if command[0] == b"WAITAOF"]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        below_reader, below_writer = await asyncio.open_connection("127.0.0.1", self._port)
        commands, mine = hiredis.Reader(), []
        self.asked.append(mine)
        try:
            while data := await reader.read(65536):
                commands.feed(data)
                while (command := commands.gets()) is not False:
                    mine.append(command)
                    if command[0] == b"WAITAOF":
                        if self.cut_next:
                            self.cut_next = False
                            return
                        writer.write(self.forced)
                        continue
                    below_writer.write(hiredis.pack_command(tuple(command)))
                    writer.write(_renamed(await _answer(below_reader)))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # a client is gone, or the test is over
        finally:
            below_writer.close()
            writer.close()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    """The bytes of one answer."""
    answers, raw = hiredis.Reader(), b""
    while True:
        data = await reader.read(65536)
        if not data:
            raise ConnectionError
        raw += data
        answers.feed(data)
        if answers.gets() is not False:
            return raw


def _renamed(raw: bytes) -> bytes:
    """The answer to INFO of a newer server, of the same length."""
    head, name, rest = raw.partition(b"\r\nredis_version:")
    if not name:
        return raw
    version, end, rest = rest.partition(b"\r\n")
    return head + name + b"7.2.4".ljust(len(version), b" ")[: len(version)] + end + rest


@pytest.fixture
def old(tmp_path: Path) -> Redis:
    return Redis(tmp_path, appendonly="yes", appendfsync="everysec")


@pytest.fixture
async def newer(old: Redis) -> AsyncIterator[Newer]:
    proxy = Newer(old.port)
    yield proxy
    await proxy.stop()
    old.stop()


async def test_a_submit_can_wait_for_the_disk(newer: Newer) -> None:
    store = await open_store(await newer.start())
    world = World(store, store.clock)  # type: ignore[arg-type]  # it is only read here

    await world.submit()
    assert newer.waits() == []
    assert "waits for the disk" in store.durability_of("local")
    await store.insert([world.new()], durability="local")

    assert newer.waits() == [[b"WAITAOF", b"1", b"0", b"10000"]]
    [client] = [client for client in newer.asked if newer.waits()[0] in client]
    place = client.index(newer.waits()[0])
    assert client[place - 1][0] == b"EVAL", "something was written on this connection first"
    await store.close()


async def test_with_the_option_submits_and_endings_wait_and_claims_do_not(newer: Newer) -> None:
    store = await open_store(f"{await newer.start()}?durability=local")
    world = World(store, store.clock)  # type: ignore[arg-type]  # as above
    assert "waits for the disk (WAITAOF)" in store.durability

    await world.open("s1")
    first, second = await world.submit(), await world.submit()
    assert len(newer.waits()) == 2
    claimed = await world.claim("s1", 2)
    await store.beat(["s1"])
    assert len(newer.waits()) == 2
    await world.move(claimed[0], "succeeded", holder="s1")
    assert len(newer.waits()) == 3
    await world.move(claimed[1], "failed", "quarantined", holder="s1")
    assert len(newer.waits()) == 4
    assert {first.id, second.id} == {job.id for job in claimed}
    await store.close()


async def test_a_disk_that_is_too_slow_is_an_outage_and_the_job_is_there_once(newer: Newer) -> None:
    store = await open_store(await newer.start())
    world = World(store, store.clock)  # type: ignore[arg-type]  # as above
    newer.forced = b"*2\r\n:0\r\n:0\r\n"

    with pytest.raises(StoreUnavailable, match="did not force its file to the disk within 10 s"):
        await store.insert([world.new(key="order-7")], durability="local")

    newer.forced = b"*2\r\n:1\r\n:0\r\n"
    [again] = await store.insert([world.new(key="order-7")], durability="local")
    assert not again.created
    assert len(newer.waits()) == 2, "what was found is forced, too"
    assert len(await store.audit()) == 1
    await store.close()


async def test_a_wait_that_is_cut_is_made_again_on_the_next_connection(newer: Newer) -> None:
    store = await open_store(await newer.start())
    world = World(store, store.clock)  # type: ignore[arg-type]  # as above
    newer.cut_next = True

    await store.insert([world.new()], durability="local")

    assert len(newer.waits()) == 2
    last = next(client for client in reversed(newer.asked) if any(each[0] == b"WAITAOF" for each in client))
    place = next(n for n, each in enumerate(last) if each[0] == b"WAITAOF")
    assert last[place - 1][0] == b"EVAL", "the script has found the job written: the wait needs a write of its own"
    assert len(await store.audit()) == 1
    await store.close()


async def test_a_server_that_refuses_the_command_is_told_as_such(newer: Newer) -> None:
    store = await open_store(await newer.start())
    world = World(store, store.clock)  # type: ignore[arg-type]  # as above
    newer.forced = b"-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.\r\n"

    with pytest.raises(InvalidInput, match="cannot wait for its disk .*set appendonly yes"):
        await store.insert([world.new()], durability="local")
    await store.close()


async def test_an_older_server_is_refused_with_what_to_do(old: Redis) -> None:
    if tuple(map(int, old.version.split(".")[:2])) >= (7, 2):
        pytest.skip("the server of this machine knows the command")
    with pytest.raises(InvalidInput, match=r"needs Redis 7\.2 or Valkey, and this is .*appendfsync always"):
        await open_store(f"{old.url()}?durability=local")
    store = await open_store(old.url())
    world = World(store, store.clock)  # type: ignore[arg-type]  # as above
    with pytest.raises(InvalidInput, match=r"Redis 7\.2"):
        await store.insert([world.new()], durability="local")
    assert await store.audit() == []
    await store.close()
    old.stop()


@pytest.mark.parametrize(
    ("fields", "level", "why"),
    [
        ({"appendonly": False}, "local", "appendonly yes"),
        ({"appendonly": True, "appendfsync": "everysec"}, "replicated", "wait for its replicas.*it can give local"),
        ({"appendonly": True, "appendfsync": "everysec"}, "applied", "wait for its replicas"),
        ({"appendonly": True, "appendfsync": "always"}, "local", None),
        ({"appendonly": True, "appendfsync": "everysec", "version": "7.2.0"}, "local", None),
        ({"version": "8.0.1", "product": "Valkey"}, "local", None),
    ],
)
def test_which_server_can_give_which_level(fields: dict[str, object], level: Durability, why: str | None) -> None:
    facts = server_check.RedisServerFacts(**{"product": "Redis", "version": "7.0.15", **fields})  # type: ignore[arg-type]
    if why is None:
        facts.check_forced(level)
    else:
        with pytest.raises(InvalidInput, match=why):
            facts.check_forced(level)


async def test_under_always_no_answer_waits_any_longer(tmp_path: Path) -> None:
    server = Redis(tmp_path, appendonly="yes", appendfsync="always")
    proxy = Newer(urlsplit(server.url()).port or 0)
    store = await open_store(f"{await proxy.start()}?durability=local")
    world = World(store, store.clock)  # type: ignore[arg-type]  # as above

    await store.insert([world.new()], durability="local")

    assert proxy.waits() == []
    assert "appendfsync always" in store.durability
    await store.close()
    await proxy.stop()
    server.stop()
