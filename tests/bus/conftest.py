"""One bus per test and adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.bus.adapters import ADAPTERS, BusAdapter, Connect


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    adapter: BusAdapter = request.param
    async with adapter.open() as connect:
        yield connect
