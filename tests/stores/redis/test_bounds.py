"""What one call may ask of the server, which is one thread: never all there is at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from mainstay.control.check import watching
from mainstay.stores import open_store
from mainstay.testing import VirtualClock
from servers import Redis
from tests.conformance.world import World
from tests.stores.redis.conftest import Plain


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    found = Redis(tmp_path_factory.mktemp("redis"))
    yield found
    found.stop()


@pytest.fixture
def plain(server: Redis) -> Iterator[Plain]:
    found = Plain(f"{server.url()}?prefix=mainstay")
    yield found
    found.client.flushall()


@pytest.fixture
async def world(server: Redis, plain: Plain) -> AsyncIterator[World]:
    clock = VirtualClock()
    found = World(await open_store(server.url(), clock=clock), clock)
    await found.open("s1", lease_s=1000)
    yield found
    await found.store.close()


class Calls:
    """How often the server was asked, by command, since this was made."""

    def __init__(self, plain: Plain) -> None:
        self._client = plain.client
        self._client.config_resetstat()

    def of(self, command: str) -> int:
        stats: Any = self._client.info("commandstats")
        return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))


async def test_the_leaders_timer_does_not_walk_over_the_whole_server(world: World, plain: Plain) -> None:
    await world.store.insert([world.new() for _ in range(300)])
    calls = Calls(plain)

    assert (await watching(world.store)(None)).clean

    assert calls.of("scan") == 0
    assert calls.of("evalsha") > 300 // 200


async def test_the_leaders_timer_finds_a_row_that_would_never_be_claimed(world: World, plain: Plain) -> None:
    job = await world.submit()
    plain("ZREM", "ready:default", job.id)
    plain("HINCRBY", "tallies", "default\0pending", 5)
    found = (await watching(world.store)(None)).violations
    assert {each.code for each in found} == {"index_damaged", "tally_wrong"}
