"""A store with a virtual clock on the run's server, and a plain client beside it to do what no store would."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import pytest
import redis

from mainstay.stores import open_store
from mainstay.testing import VirtualClock
from tests.conformance.world import World


class Plain:
    """Plain commands on the keys of one namespace."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.prefix = f"{{{parse_qs(parts.query)['prefix'][0]}}}:"
        self.client = redis.Redis.from_url(parts._replace(query="").geturl())

    def __call__(self, command: str, key: str, *args: str | int | bytes) -> object:
        return self.client.execute_command(command, self.prefix + key, *args)

    def names(self) -> set[str]:
        found = self.client.scan_iter(match=f"{self.prefix}*", count=10_000)
        return {key.decode().removeprefix(self.prefix) for key in found}


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[World]:
    clock = VirtualClock()
    store = await open_store(redis_url, clock=clock)
    yield World(store, clock)
    await store.close()


@pytest.fixture
def plain(redis_url: str) -> Plain:
    return Plain(redis_url)
