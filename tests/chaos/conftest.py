"""Fleets of real workers on real stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.chaos.fleet import Fleet
from tests.conformance.adapters import ADAPTERS

#: a module that sets the clock wrong wherever it is imported
collect_ignore = ["wrong_clock"]
#: where nothing but the lease tells of a death, it is short: how long it takes is not what is tested
SHORT = {"heartbeat": "500ms", "lease": "3s", "sweep": "500ms"}


@pytest.fixture
async def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fleet]:
    """On SQLite, or on the store that a test is parametrised with (`@on_every_store`)."""
    name = getattr(request, "param", "sqlite")
    [adapter] = [adapter for adapter in ADAPTERS if adapter.name == name]
    fleet = await Fleet(tmp_path, adapter.at(tmp_path), **(SHORT if name == "redis" else {})).open()
    yield fleet
    await fleet.close()
