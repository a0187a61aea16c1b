"""A run on nodes that is watched over a lossy bus while its leaders die, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mainstay.load.fleet.live_cursor import LiveCursor
from mainstay.load.fleet.watched_run import WatchedRun
from mainstay.load.stats.model import Window
from mainstay.stores.remote import ManagerConnection, RemoteCaller
from mainstay.testing import BusFaults
from tests.sim.load_scenes import LoadScene, play_in

Happening = Callable[[LoadScene, str], Awaitable[None]]

pytestmark = pytest.mark.usefixtures("quiet")


class Counter:
    """One client: what it counts, and the results that it gets."""

    def __init__(self) -> None:
        self.cursor = LiveCursor()
        self.requests = 0
        self.shown: list[int] = []
        """what it has counted after each round of messages"""
        self.results: list[str] = []
        self.begins = 0

    def read(self, run: WatchedRun) -> None:
        if run.history is None:
            return
        for update in self.cursor.updates(run.history):
            if update.header is not None:
                self.requests, self.begins = 0, self.begins + 1
            if update.entry is not None:
                self.requests += requests_of(update.entry.moment.window)
            if update.result is not None:
                self.results.append(update.result.workflow)
        self.shown.append(self.requests)

    async def follow(self, run: WatchedRun) -> None:
        while True:
            changed = run.changed
            self.read(run)
            await changed.wait()


def requests_of(window: Window) -> int:
    return sum(times.count for step in window.steps for times in (step.ok, step.failed) if times is not None)


def watched(scene: LoadScene, job: str, name: str) -> WatchedRun:
    caller = RemoteCaller(role="operator", name=name, cluster="local", environment="default")
    return WatchedRun(ManagerConnection(scene.network.client(f"operator.{name}"), caller), job)


async def leader_dies(scene: LoadScene, job: str) -> None:
    first = scene.leader_of(job)
    scene.hosts[first].crash()
    await scene.until(lambda: scene.leader_of(job) not in ("", first))


async def leader_stops(scene: LoadScene, job: str) -> None:
    await scene.manager_machines[scene.leader_of(job)].stop()


async def nothing_happens(scene: LoadScene, job: str) -> None:
    del scene, job


@pytest.mark.parametrize("happens", [nothing_happens, leader_stops, leader_dies])
def test_a_watcher_counts_what_the_run_counts_though_messages_are_lost_and_leaders_end(happens: Happening) -> None:
    async def script(scene: LoadScene) -> None:
        job = await scene.submit_run(layers=2, vus=8, duration="5s")
        early, late = Counter(), Counter()
        bad = BusFaults(latency_s=0.002, lost=0.2, duplicated=0.2, reordered=0.2)
        scene.network.links |= {(each, f"operator.{name}"): bad for each in scene.hosts for name in ("early", "late")}
        async with watched(scene, job, "early") as run:
            following = asyncio.ensure_future(early.follow(run))
            await scene.until_loaded(job)
            await asyncio.sleep(2)
            await happens(scene, job)
            await asyncio.sleep(2)
            async with watched(scene, job, "late") as other:
                also = asyncio.ensure_future(late.follow(other))
                await scene.settled(job)
                await run.complete()
                await other.complete()
                early.read(run)
                late.read(other)
                also.cancel()
            following.cancel()
        [summary] = await scene.finished(job)

        assert early.requests == late.requests == summary.requests == 8 * 50 + 8 * 25 * 2
        assert early.results == late.results == [each["name"] for each in summary.header.workflows]
        assert early.shown == sorted(early.shown), "numbers that were shown have fallen"
        assert early.begins == (1 if happens is nothing_happens else 2)

    play_in(LoadScene, script, seed=1)
