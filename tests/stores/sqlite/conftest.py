"""One database file per test, the store on it, and other processes beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from mainstay.stores.sqlite import SqliteStore
from mainstay.testing import VirtualClock
from tests.conformance.world import World
from tests.stores.sqlite.process import PROGRAM, Child

Spawn = Callable[..., Child]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def world(path: Path) -> AsyncIterator[World]:
    """A store in virtual time, closed at the end and found sound."""
    clock = VirtualClock()
    world = World(SqliteStore(path, clock=clock, busy_timeout_s=0.2), clock)
    yield world
    await world.assert_sound()
    await world.store.close()


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Start `program.py`; all processes are gone after the test."""
    children: list[Child] = []

    def start(action: str, *arguments: object, wrapper: Sequence[str] = ()) -> Child:
        children.append(Child(PROGRAM, action, *arguments, wrapper=wrapper))
        return children[-1]

    yield start
    for child in children:
        child.end()
