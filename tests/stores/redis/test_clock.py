"""Due times and leases are judged by the server's clock: what the wall clock of a machine says does not matter."""

from __future__ import annotations

import asyncio
import time

import pytest

from mainstay.control import Control
from mainstay.model import Session
from mainstay.stores import open_store
from tests.stores.redis.conftest import Plain

HOUR_S = 3600.0


@pytest.mark.parametrize("off_s", [HOUR_S, -HOUR_S])
async def test_a_worker_whose_wall_clock_is_an_hour_off_neither_runs_early_nor_reaps_the_living(
    redis_url: str, plain: Plain, monkeypatch: pytest.MonkeyPatch, off_s: float
) -> None:
    right = Control(await open_store(redis_url))
    await right.store.open_session(Session(id="right", lease_s=8))
    later = await right.jobs.submit("t", {}, queue="q", delay="10m")
    now = await right.jobs.submit("t", {}, queue="q")
    [held] = await right.store.claim(["q"], "right", 10)
    assert held.id == now.id

    true_time, true_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: true_time() + off_s)
    monkeypatch.setattr(time, "time_ns", lambda: true_ns() + int(off_s * 1e9))
    wrong = Control(await open_store(redis_url))
    seconds, _ = plain.client.time()
    assert abs(wrong.store.clock.now_ms() / 1000 - seconds) < 5
    await wrong.store.open_session(Session(id="wrong", lease_s=8))
    assert await wrong.store.claim(["q"], "wrong", 10) == []
    assert await wrong.store.overdue() == []
    soon = await wrong.jobs.submit("t", {}, queue="q", delay="100ms")
    await asyncio.sleep(0)
    while not (taken := await wrong.store.claim(["q"], "wrong", 10)):
        due_ms = await wrong.store.due(["q"])
        assert due_ms is not None
        await asyncio.sleep(max(0.0, (due_ms - wrong.store.clock.now_ms()) / 1000))
    assert [job.id for job in taken] == [soon.id]
    row = await right.jobs.get(later.id)
    assert row is not None
    assert row.status == "scheduled"
    assert await right.store.overdue() == []
    for control in (right, wrong):
        await control.store.close()
