"""Due times and leases are judged by the server's clock, whatever a worker's machine says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.world import World
from tests.stores.sqlite.process import Child

PROGRAM = Path(__file__).with_name("program.py")


@pytest.fixture(params=["1", "-1"])
def off(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Child]:
    """A worker whose wall clock is one hour ahead, or behind."""
    child = Child(PROGRAM, "an_hour_off", postgres_url, request.param)
    yield child
    child.end()


async def test_a_worker_whose_clock_is_an_hour_off_sees_due_times_and_leases_right(world: World, off: Child) -> None:
    told_ms = int(off.line())
    assert abs(told_ms - time.time() * 1000) < 5000, "its store's clock is the server's"

    assert off.line() == "True True scheduled", "a job that is due in half a second is not due now, and then it is"
    assert off.line() == "0 [False] 1"
    assert await world.store.overdue() == [], "and its session is alive for everybody else"
    off.tell()
    assert off.line() == ""
    await world.store.close_session("off")
    await world.reap()
