"""Fleets of real workers on real stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.chaos.fleet import Fleet
from tests.conformance.adapters import ADAPTERS

#: a module that sets the clock wrong wherever it is imported
collect_ignore = ["wrong_clock"]
#: where it is not the default settings that are tested, a lease is short: nobody has to wait for a long one
SHORT = {"heartbeat": "500ms", "lease": "3s", "sweep": "500ms"}
LONG = {"heartbeat": "500ms", "lease": "10m", "sweep": "500ms"}


@pytest.fixture
async def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fleet]:
    """On SQLite by the default settings, or on the store that a test is parametrised with (`@on_every_store`): there,
    and as "sqlite short" or "sqlite long", by those above."""
    name, _, lease = getattr(request, "param", "sqlite").partition(" ")
    [adapter] = [adapter for adapter in ADAPTERS if adapter.name == name]
    settings = {"short": SHORT, "long": LONG, "": SHORT if adapter.server else {}}[lease]
    fleet = await Fleet(tmp_path, adapter.at(tmp_path), **settings).open()
    yield fleet
    await fleet.close()
