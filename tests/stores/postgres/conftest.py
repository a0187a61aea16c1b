"""Stores on the run's PostgreSQL server, with the server's own clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from mainstay.stores import open_store
from servers import Postgres, Proxy, folder
from tests.conformance.world import World
from tests.stores.postgres.stands import Stores


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    """Opens stores and closes them after the test."""
    stores = Stores()
    yield stores
    await stores.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[Postgres]:
    """For tests that keep a transaction open, or ask for the oldest of the server: others must not meet them."""
    with folder("mainstay-own-") as place:
        server = Postgres(place, fsync="off")
        yield server
        server.stop()


@pytest.fixture
async def world(postgres_url: str) -> AsyncIterator[World]:
    """A store and short words for it. Its clock is the server's: nobody advances it."""
    store = await open_store(postgres_url)
    world = World(store, store.clock)  # type: ignore[arg-type]  # it is only read here
    try:
        yield world
        await world.assert_sound()
    finally:
        await store.close()


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    """Between a client and the run's server."""
    with Proxy.before(postgres_url) as proxy:
        yield proxy
