"""Floods: a client that asks far more than it may, and a node that sends windows which are not its own.

Managers must keep what is under way for one caller within its share, and a run must count none of such windows. That
nothing else suffers is what the world checks anyway: beats are answered, runs are not stuck, totals are exact.
"""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections import deque
from typing import TYPE_CHECKING

from mainstay.bus import MessageClass
from mainstay.errors import BusError, MainstayError
from mainstay.load.fleet.messages import SliceWindow, encode_windows, window_subject
from mainstay.load.stats.histogram import sketch_of
from mainstay.load.stats.model import StepStats, Window
from mainstay.stores.remote import RemoteStore
from mainstay.stores.remote.service import AT_ONCE

if TYPE_CHECKING:
    from .cluster import ClusterWorld
    from .load_cluster import LoadClusterWorld

#: reads that a client sends at one moment, every second
READS = 450
#: what one caller may have under way at a manager
SHARE = AT_ONCE[MessageClass.DATA] // 4
#: messages with windows that a node sends in a second, and the slices that they name
WINDOWS, _SLICES = 50, 6
_ANSWER_S = 2.0
_LOOKS, _LOOK_S = 10, 0.002


async def flood_with_reads(world: ClusterWorld, name: str, for_s: float) -> None:
    """Ask again and again without waiting for answers."""
    try:
        store = await world.remote("operator", name)
    except MainstayError:
        return  # it reaches no manager
    asking: list[asyncio.Task[None]] = []
    try:
        for _ in range(max(1, round(for_s))):
            asking += [asyncio.create_task(_ask(store)) for _ in range(READS)]
            for _ in range(_LOOKS):
                await asyncio.sleep(_LOOK_S)
                _check_share(world, name)
            await asyncio.sleep(1 - _LOOKS * _LOOK_S)
        await asyncio.wait(asking)
    finally:
        await store.close()


async def _ask(store: RemoteStore) -> None:
    with contextlib.suppress(MainstayError):
        await store.ask(store.subject("sessions"), store.envelope(b"\x80"), _ANSWER_S)


def _check_share(world: ClusterWorld, name: str) -> None:
    for manager in [each.manager for each in world.manager_machines.values() if each.manager is not None]:
        record = manager.calls._callers.of(f"operator:{name}")  # noqa: SLF001 - the world sees everything
        if record.busy[MessageClass.DATA] > SHARE:
            world.found(f"a manager answers {record.busy[MessageClass.DATA]} reads of {name} at once, of {SHARE}")


async def flood_with_windows(world: LoadClusterWorld, node: str, jobs: list[str], for_s: float) -> None:
    """Send windows for slices that other nodes have."""
    # it shares no name with the node, whose connection stays
    bus = world.client(f"flood.{node}", node)
    step = StepStats(workflow="Browse", step="look", ok=sketch_of(array("d", [0.1])), statuses={"200": 1})
    try:
        for number in range(round(for_s * WINDOWS)):
            await asyncio.sleep(1 / WINDOWS)
            # the windows of any slice are numbered from 0
            window = Window(bucket=int(world.clock.now_ms() / 100) + number, process=0, begun=1, iterations=1)
            window.steps = [step]
            for job in jobs:
                for own in [each for each in range(_SLICES) if not world.had_slice(node, job, each)]:
                    body = encode_windows(deque([SliceWindow(token=1, go=1, number=number, window=window)]))
                    await bus.publish(window_subject(node, job, own), body)
    except BusError:
        return
    finally:
        await bus.close()


__all__ = ["READS", "SHARE", "WINDOWS", "flood_with_reads", "flood_with_windows"]
