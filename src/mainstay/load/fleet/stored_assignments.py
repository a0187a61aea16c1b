"""Which machine runs each slice, read from the rows of the slices: the leader of placement assigns them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from typing import Self

from ...control import Control, lose_unit
from ...errors import StoreError
from ...lifecycle import Move
from ...model import Job
from ...stores import PLACEMENT_TOPIC
from ...words import counted
from ...worker import Outage
from ..generator_process import GeneratorLost
from .messages import UNREADABLE, SliceEnd, decode_end
from .saved_run import StoredSlice
from .settings import FleetMember

log = logging.getLogger("mainstay.load")

#: how often the rows are read without a wake
_POLL_S = 1.0
#: between two reads, however many wakes come: those of all runs wake each leader
_LEAST_S = 0.05
#: events of a slice that are read to find the end of an assignment
_RECENT = 20
_HELD = ("dispatched", "running")


class StoredAssignments:
    """The assignments of the slices of one round: `async with`, then the port `SliceAssignments`."""

    def __init__(
        self,
        control: Control,
        slices: Sequence[StoredSlice],
        *,
        actor: str,
        rng: random.Random,
        poll_s: float = _POLL_S,
    ) -> None:
        self._control = control
        self._rng = rng
        self._calls = {each.call.number: each.call for each in slices}
        self._rows: dict[int, Job] = {each.call.number: each.row for each in slices}
        self._nodes: dict[str, str] = {}
        """by session"""
        self._actor = actor
        self._poll_s = poll_s
        self._changed = asyncio.Condition()
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reading = asyncio.create_task(self._read_on(), name="mainstay slice rows")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    # the port ---------------------------------------------------------------------------------------

    async def after(self, number: int, token: int) -> FleetMember:
        """Wait for the assignment of a slice, confirmed by its node, with a token above this one."""

        def is_known(row: Job) -> bool:
            # a successor of the leader has the row before it has read the sessions
            return row.token > token and row.status == "running" and row.session in self._nodes

        row = await self._until(number, is_known)
        return FleetMember(
            node=self._nodes[row.session or ""],
            processes=self._calls[number].cores,
            token=row.token,
        )

    async def over(self, number: int, token: int) -> str:
        """Wait until this assignment is over; returns why."""
        row = await self._until(number, lambda row: row.token != token or row.status not in _HELD)
        return await self._why_taken(row, token) or f"the slice is {row.status}"

    async def give_up(self, number: int, token: int, why: str) -> None:
        """Take a slice away from a node that does not answer its leader, so that another node gets it."""

        def decide(row: Job, _: int) -> tuple[Move, ...]:
            return lose_unit(row, why) if row.token == token and row.status in _HELD else ()

        slice_id = self._rows[number].id
        outage = Outage(f"end of an assignment slice_id={slice_id}", self._rng)
        while True:
            try:
                await self._control.drivers.act(slice_id, decide, actor=self._actor)
            except StoreError as error:
                await asyncio.sleep(outage.failed(error))
                continue
            outage.over()
            return

    async def end_of(self, number: int, token: int) -> SliceEnd | None:
        """What the node of a slice has stored of the last load of this assignment."""
        try:
            [row] = await self._control.store.get([self._rows[number].id])
        except StoreError as error:
            log.warning("slice_id=%s the end of its load could not be read: %s", self._rows[number].id, error)
            return None
        if row is None or row.checkpoint is None:
            return None
        with contextlib.suppress(*UNREADABLE):
            end: SliceEnd = decode_end(row.checkpoint)
            return end if end.token == token else None
        return None

    def waiting(self, number: int) -> str:
        """What a slice that has no assignment waits for, in words."""
        row, cores = self._rows[number], counted(self._calls[number].cores, "free core")
        if row.status == "dispatched":
            return "its node has not confirmed it"
        return row.reason or f"it waits for a node with {cores}"

    # within -----------------------------------------------------------------------------------------

    async def _until(self, number: int, is_it: Callable[[Job], bool]) -> Job:
        async with self._changed:
            while not is_it(row := self._rows[number]):
                if row.settled_ms is not None:
                    why = row.error.message if row.error is not None else row.reason
                    raise GeneratorLost(f"slice {number} is {row.status}: {why or 'no reason was recorded'}")
                await self._changed.wait()
            return row

    async def _why_taken(self, row: Job, token: int) -> str:
        """The reason of the move that ended an assignment: a row that waits again has none."""
        with contextlib.suppress(StoreError):
            for event in reversed(await self._control.store.events(row.id, after=max(0, row.version - _RECENT))):
                if event.token == token and event.source in _HELD and event.to not in _HELD:
                    return event.reason or ""
        return row.reason or ""

    async def _read_on(self) -> None:
        async with self._control.store.wake([PLACEMENT_TOPIC]) as wake:
            while True:
                try:
                    await self._read()
                except StoreError:
                    pass  # the load goes on without the store, and what it says then is read when it is back
                except Exception:
                    log.exception("the rows of slices could not be read; trying again")
                await wake.wait(self._poll_s)
                await asyncio.sleep(_LEAST_S)

    async def _read(self) -> None:
        numbers = list(self._rows)
        found = await self._control.store.get([self._rows[number].id for number in numbers])
        rows = {number: row for number, row in zip(numbers, found, strict=True) if row is not None}
        changed = any(row.version != self._rows[number].version for number, row in rows.items())
        held = {row.session for row in rows.values() if row.session is not None}
        if not held <= self._nodes.keys():
            self._nodes = {session.id: session.node for session in await self._control.store.sessions()}
            changed = True
        self._rows.update(rows)
        if changed:
            async with self._changed:
                self._changed.notify_all()


__all__ = ["StoredAssignments"]
