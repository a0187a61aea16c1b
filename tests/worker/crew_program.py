"""A program for real engines under a supervisor: jobs that hang in every way there is."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mainstay.control import Control, Duty
from mainstay.lifecycle import Move
from mainstay.model import PLACE_QUEUE, Job, Leadership, Settings
from mainstay.stores import Change, Query
from mainstay.worker import context
from tests.worker.program import Stage

stage = Stage(os.environ.get("CREW_STORE", "memory:"))
stage.settings = Settings.of(
    heartbeat="200ms", lease=os.environ.get("CREW_LEASE", "3s"), sweep=os.environ.get("CREW_SWEEP", "200ms")
)


async def goes_on() -> None:
    await asyncio.Event().wait()


async def takes(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


async def waits_for(path: str) -> str:
    while not await asyncio.to_thread(os.path.exists, path):
        await asyncio.sleep(0.01)
    return "done"


async def holds_cores(cores: int, path: str) -> str:
    context().link.take_cores(cores)
    await context().save("held")
    return await waits_for(path)


async def blocks_the_loop() -> None:
    time.sleep(600)


async def holds_the_interpreter() -> None:
    ctypes.pythonapi.sleep(600)


async def leaves() -> None:
    os._exit(3)


async def exits_in_a_task_of_its_own() -> None:
    async def helper() -> None:
        sys.exit(3)

    await asyncio.gather(helper())


def takes_in_a_thread(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


def moves_slowly(steps: int) -> str:
    for step in range(steps):
        context().progress(step + 1, steps)
        time.sleep(0.05)
    return "done"


def takes_apart(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


for function in (goes_on, takes, waits_for, blocks_the_loop, holds_the_interpreter, leaves, exits_in_a_task_of_its_own):
    stage.act(function, "loop")
stage.act(holds_cores, "loop")
stage.acts["holds_cores"].supervises = True  # type: ignore[attr-defined]
stage.act(moves_slowly, "thread")
stage.act(takes_in_a_thread, "thread")
stage.act(takes_apart, "process")


class PlacingStage(Stage):
    """A program with placed work only. Its placement leader assigns every pending unit to its own session."""

    def offer(self) -> Mapping[str, Mapping[str, Any]]:
        return {}

    def placed_offer(self) -> Mapping[str, Mapping[str, Any]]:
        return {name: {} for name in self.acts}

    def placement_duties(self, control: Control, session_id: str) -> Sequence[Duty]:
        async def assign(lead: Leadership) -> None:
            store, now_ms = control.store, control.store.clock.now_ms()
            parents = await store.find(Query(queue=PLACE_QUEUE, name="crew"))
            for parent in parents.jobs:
                page = await store.find(Query(parent=parent.id, status=("pending",)))
                changes = [_assignment(row, session_id, now_ms) for row in page.jobs]
                if changes:
                    await store.apply(changes, lead=lead)

        return [Duty("assign", 0.05, assign)]


def _assignment(row: Job, session: str, now_ms: int) -> Change:
    fields = {"token": row.token + 1, "session": session, "claimed_ms": now_ms, "expires_ms": now_ms + 20_000}
    move = Move(to="dispatched", reason="assigned", fields=fields)
    return Change(before=row, moves=(move,), actor=session, at_ms=now_ms)


placing = PlacingStage(stage.store_url)
placing.settings = stage.settings
placing.acts = stage.acts


class MixedStage(PlacingStage):
    """A program that also has tasks."""

    def offer(self) -> Mapping[str, Mapping[str, Any]]:
        return {"takes": {}}


mixed = MixedStage(stage.store_url)
mixed.settings = stage.settings
mixed.acts = stage.acts
