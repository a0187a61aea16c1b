"""Load runs while a client floods the managers with reads and a node sends windows of slices that it does not have."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable

import pytest

from mainstay.bus import BusMessage
from mainstay.load.fleet.fleet_runner import FleetRunner
from mainstay.load.fleet.slice_link import SliceLink
from mainstay.stores.remote import service
from mainstay.testing import StoreFaults
from sim.floods import flood_with_reads, flood_with_windows
from tests.sim.load_scenes import LoadScene, lost_parts, play_in

pytestmark = pytest.mark.usefixtures("quiet")

FLOOD_S = 15.0


async def leader_cut_off(scene: LoadScene, job: str) -> None:
    """Scenario 16: the manager that leads the run reaches neither the bus nor the store."""
    leader = scene.leader_of(job)
    async with scene.fault("split", leader):
        scene.links[leader].faults = StoreFaults(unavailable=True)
        await scene.until(lambda: scene.leader_of(job) not in ("", leader))
    scene.links[leader].faults = StoreFaults()


async def store_away(scene: LoadScene, job: str) -> None:
    """Scenario 17: nothing is written for ten seconds."""
    del job
    for link in scene.links.values():
        link.faults = StoreFaults(unavailable=True)
    await asyncio.sleep(10)
    for link in scene.links.values():
        link.faults = StoreFaults()


async def managers_upgraded(scene: LoadScene, job: str) -> None:
    """Scenario 25: one manager after the other is stopped and started."""
    del job
    for name in scene.managers:
        await scene.manager_machines[name].stop()
        scene.start_server(name)
        await scene.until(lambda: not scene.disagreement())


async def nothing_else(scene: LoadScene, job: str) -> None:
    """Scenario 22: the floods are all that happens."""
    del scene, job


Trouble = Callable[[LoadScene, str], Awaitable[None]]


async def flooded(scene: LoadScene, trouble: Trouble) -> None:
    job = await scene.run_under_load(duration="30s")
    other = await scene.run_under_load(duration="60s", demand={"nodes": 2, "processes": 2})
    floods = [
        asyncio.create_task(flood_with_reads(scene, "c2", FLOOD_S)),
        asyncio.create_task(flood_with_windows(scene, "n1", [job], FLOOD_S)),
    ]
    await trouble(scene, job)
    scene.cancelled.add(other)
    await scene.control.operations.cancel(other, actor="ann")
    assert await scene.until(lambda: not scene.loads(other)) <= 3
    [summary] = await scene.finished(job)
    assert summary.requests == 1200
    assert not lost_parts(summary)
    assert [row.token for row in scene.slices(job)] == [1, 1, 1, 1]
    await asyncio.gather(*floods)


@pytest.mark.parametrize("trouble", [nothing_else, leader_cut_off, store_away, managers_upgraded])
def test_a_flood_disturbs_no_run_and_no_cancel_whatever_else_happens(trouble: Trouble) -> None:
    play_in(LoadScene, functools.partial(flooded, trouble=trouble))


def test_a_leader_that_counts_the_windows_of_any_node_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def any_link(self: FleetRunner, message: BusMessage) -> SliceLink | None:
        number = int(message.subject.rpartition(".")[2])
        return self._slices[number].live if number < len(self._slices) else None

    monkeypatch.setattr(FleetRunner, "_link_of", any_link)
    with pytest.raises(AssertionError, match="requests"):
        play_in(LoadScene, functools.partial(flooded, trouble=nothing_else))


def test_managers_that_answer_a_flood_at_once_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_CALLER_SHARE", 1)
    with pytest.raises(AssertionError, match="reads of c2 at once, of 125"):
        play_in(LoadScene, functools.partial(flooded, trouble=nothing_else))
