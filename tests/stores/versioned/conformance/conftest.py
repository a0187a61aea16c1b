"""One fresh store per test and adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainstay.stores.versioned import VersionedStore
from tests.stores.versioned.conformance.adapter import Adapter
from tests.stores.versioned.conformance.adapters import ADAPTERS


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    found: Adapter = request.param
    return found


@pytest.fixture
async def store(adapter: Adapter, tmp_path: Path) -> AsyncIterator[VersionedStore]:
    store = await adapter.open(tmp_path)
    yield store
    await store.close()
