"""When an engine claims jobs, and how many."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from ..model import Job
from ..stores import JobStore
from .outage import Outage

#: how long the time of the next due row is used before it is read again
_DUE_S = 0.2
_SHORTEST_WAIT_S = 0.001


class ClaimLoop:
    """Claims as many as are wanted. When there are no more, it sleeps until it is woken or a job gets due."""

    def __init__(
        self,
        store: JobStore,
        *,
        queues: Callable[[], tuple[str, ...]],
        wanted: Callable[[int], int],
        claim: Callable[[int], Awaitable[list[Job]]],
        room: asyncio.Event,
        poll_s: float,
        rng: random.Random,
    ) -> None:
        self._store = store
        self._queues = queues
        self._wanted = wanted
        self._claim = claim
        self._poll_s = poll_s
        self._rng = rng
        self._room = room
        """set when more may be wanted than a moment ago"""
        self._requested = 0
        """how many jobs the pending claims request"""
        self._flows = False
        """the last claim got all that it requested: there is more"""
        self._due_ms: int | None = None
        self._due_read_s = -1.0

    async def run(self) -> None:
        """Until cancelled. A claim that is called off is given back by the store."""
        outage = Outage("claim", self._rng)
        while True:
            try:
                async with self._store.wake([f"queue:{queue}" for queue in self._queues()]) as wake:
                    while True:
                        wanted = await self._until_wanted()
                        taken = await self._claim(wanted)
                        outage.over()
                        if len(taken) == wanted:
                            await self._claim_while_it_flows()
                        elif await wake.wait(await self._until_due()):
                            self._due_read_s = -1.0
            except Exception as error:  # noqa: BLE001 - an engine that claims no more looks alive and does nothing
                await asyncio.sleep(outage.failed(error))

    async def _claim_while_it_flows(self) -> None:
        """With two claims at a time. The store takes them one after the other, so it has the second when it answers the
        first: a busy loop reads that answer late, and would send the next claim later still."""
        self._flows = True
        second = asyncio.create_task(self._claim_on(), name="mainstay claims, the second")
        try:
            await self._claim_on()
            await second
        except BaseException:
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
            raise

    async def _claim_on(self) -> None:
        try:
            while wanted := await self._until_wanted(flowing=True):
                self._requested += wanted
                try:
                    taken = await self._claim(wanted)
                finally:
                    self._requested -= wanted
                    # the other may wait for this: when nothing runs, nothing else makes room
                    self._room.set()
                if len(taken) < wanted:
                    self._flows = False
        except BaseException:
            self._flows = False
            raise

    async def _until_wanted(self, *, flowing: bool = False) -> int:
        """How many; `flowing`: 0 as soon as a claim fell short."""
        while True:
            self._room.clear()
            if flowing and not self._flows:
                return 0
            if wanted := self._wanted(self._requested):
                return wanted
            await self._room.wait()

    async def _until_due(self) -> float:
        """How long to wait for a wake: there is none when a row gets due."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._due_read_s > _DUE_S:
            self._due_ms = await self._store.due(self._queues())
            self._due_read_s = now_s
        if self._due_ms is None:
            return self._poll_s
        left_s = (self._due_ms - self._store.clock.now_ms()) / 1000
        if left_s <= 0:
            self._due_read_s = -1.0
        return min(self._poll_s, max(_SHORTEST_WAIT_S, left_s))
