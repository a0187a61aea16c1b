"""Registries in memory: as many processes as a test wants, on one store."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from mainstay.model import IdSource
from mainstay.stores.versioned import VersionedStore, open_versioned
from mainstay.testing import VirtualClock
from tests.conformance.world import World
from tests.stores.registry.between import Between, opened

Join = Callable[..., Awaitable[tuple[World, Between]]]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def below() -> AsyncIterator[VersionedStore]:
    store = await open_versioned("memory:")
    yield store
    await store.close()


@pytest.fixture
async def join(below: VersionedStore, clock: VirtualClock) -> AsyncIterator[Join]:
    """Opens one more registry on the same store, and the way to it."""
    worlds: list[World] = []

    async def one_more(
        *, clock: VirtualClock = clock, way: Between | None = None, **more: Any
    ) -> tuple[World, Between]:
        way = way or Between(below)
        world = await opened(way, clock, **more)
        # those of two processes must not be the same
        world.ids = IdSource(random.Random(len(worlds)))
        worlds.append(world)
        return world, way

    yield one_more
    for world in worlds:
        await world.store.close()
