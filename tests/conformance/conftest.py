"""One world per test and adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainstay.testing import VirtualClock
from tests.conformance.adapters import ADAPTERS, Adapter
from tests.conformance.world import World


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    found: Adapter = request.param
    return found


@pytest.fixture
async def world(adapter: Adapter, tmp_path: Path) -> AsyncIterator[World]:
    clock = VirtualClock()
    store = await adapter.open(tmp_path, clock)
    world = World(store, clock)
    try:
        yield world
        await world.assert_sound()
    finally:
        await store.close()
