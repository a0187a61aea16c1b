"""Nodes of real processes on a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.chaos.conftest import SHORT
from tests.conformance.adapters import ADAPTERS
from tests.node.node_fleet import NodeFleet

#: what arrives within seconds came with a wake, not with the answer to a heartbeat
SLOW = {"heartbeat": "30s", "lease": "10m", "sweep": "500ms"}


@pytest.fixture
async def node_fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NodeFleet]:
    """On the store that a test is parametrised with, with a short lease; as "sqlite slow", with a slow heartbeat."""
    name, _, pace = request.param.partition(" ")
    [adapter] = [adapter for adapter in ADAPTERS if adapter.name == name]
    fleet = await NodeFleet(tmp_path, adapter.at(tmp_path), **(SLOW if pace else SHORT)).open()
    yield fleet
    await fleet.close()
