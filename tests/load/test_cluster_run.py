"""A script runs a load test on nodes: the manager of its cluster only pretends to lead."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mainstay.control import Failure
from mainstay.errors import MainstayError
from mainstay.load import FleetDemand, LoadOptions, cluster_run, run_on_cluster
from mainstay.load.fleet.run_source import BusRunSource, LedJob
from mainstay.load.handler import LoadFailed
from mainstay.load.run_clusters import BusCluster, PreparedRun, SubmittedRun
from tests.load.fleet.led_cluster import MOMENTS, LedCluster, submitted, summary
from tests.load.fleet.small_cluster import SmallCluster
from tests.load.fleet.test_follower import Display, Leader
from tests.load.trials import GET, HEAD

LOAD = LoadOptions(vus=8, base_url="http://127.0.0.1:1")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LedCluster:
    made = LedCluster()
    (tmp_path / "shop.py").write_text(HEAD + GET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster_run, "app_of", made.app_of)
    monkeypatch.setattr(cluster_run, "place_of_cluster", lambda named: "memory:")
    return made


async def test_a_script_gets_the_summary_and_the_windows_on_the_way(cluster: LedCluster) -> None:
    display = Display()

    found = await run_on_cluster("shop.py", LOAD, nodes=1, displays=[display], tags=["nightly"])

    assert found == summary()
    assert display.moments == MOMENTS
    assert cluster.jobs[0].options.tags == ("nightly",)


async def test_a_run_that_sends_nothing_is_an_error_with_its_reason(cluster: LedCluster) -> None:
    async def refused(of: SmallCluster) -> None:
        leader = Leader(of, await submitted(of))
        await leader.claim()
        await of.behind.attempts.fail([Failure(leader.job, LoadFailed("no module httpx on n1"))])

    cluster.lead = refused
    with pytest.raises(MainstayError, match="is failed: no module httpx on n1"):
        await run_on_cluster("shop.py", LOAD, nodes=FleetDemand(1))


async def test_a_cancelled_call_cancels_the_run(cluster: LedCluster) -> None:
    seen: list[str] = []
    begun = asyncio.Event()

    async def waits(of: SmallCluster) -> None:
        leader = Leader(of, await submitted(of))
        await leader.claim()
        begun.set()
        while (status := (await of.behind.jobs.get(leader.job.id)).status) == "running":
            await asyncio.sleep(0.01)
        seen.append(status)

    cluster.lead = waits
    task = asyncio.create_task(run_on_cluster("shop.py", LOAD, nodes=1))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await cluster.leading_task
    assert seen == ["cancelling"]


async def test_a_call_that_is_cancelled_before_its_submit_is_answered_cancels_the_run(
    cluster: LedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, answered = asyncio.Event(), asyncio.Event()
    insert, cancel = BusCluster.insert, BusRunSource.cancel
    after: list[str] = []

    async def slow(at: BusCluster, run: PreparedRun) -> SubmittedRun:
        handle = await insert(at, run)
        stored.set()
        await answered.wait()
        return handle

    async def noted(source: BusRunSource, **more: Any) -> LedJob:
        job = await cancel(source, **more)
        after.append(job.status)
        return job

    async def not_led(of: SmallCluster) -> None:
        del of

    monkeypatch.setattr(BusCluster, "insert", slow)
    monkeypatch.setattr(BusRunSource, "cancel", noted)
    cluster.lead = not_led
    task = asyncio.create_task(run_on_cluster("shop.py", LOAD, nodes=1))
    await stored.wait()
    task.cancel()
    await asyncio.sleep(0)
    answered.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert after == ["cancelled"]
