"""One world per test and adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainstay.testing import VirtualClock
from tests.conformance.adapters import ADAPTERS, Adapter
from tests.conformance.world import World


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what an adapter does not run; see `Adapter.modules`."""
    left = {item for item in items if _is_left_out(item)}
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


def _is_left_out(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    adapter = call.params.get("adapter") if call is not None else None
    if not isinstance(adapter, Adapter) or adapter.modules is None:
        return False
    return item.path.stem not in adapter.modules or item.get_closest_marker("slow") is not None


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
