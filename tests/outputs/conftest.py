"""One fresh place for outputs per test and adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainstay.outputs import OutputStore, Unit, open_outputs
from tests.outputs.adapters import ADAPTERS, Adapter


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    found: Adapter = request.param
    return found


@pytest.fixture
async def store(adapter: Adapter, tmp_path: Path) -> AsyncIterator[OutputStore]:
    async with await adapter.open(tmp_path) as store:
        yield store


@pytest.fixture
async def memory() -> AsyncIterator[OutputStore]:
    async with await open_outputs("memory:") as store:
        yield store


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[OutputStore]:
    async with await open_outputs(f"file://{tmp_path}/outputs?sync=off") as store:
        yield store


@pytest.fixture
def unit() -> Unit:
    return Unit("sir", "2024-10", {"beta": 0.3, "gamma": 0.1}, 7)
