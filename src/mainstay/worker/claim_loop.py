"""Claiming: how an engine comes by its jobs, for as long as it wants any."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from ..model import Job
from ..stores import JobStore
from .outage import Outage

#: how long the answer to "when is the next row due" is used
_DUE_S = 0.2
_SHORTEST_WAIT_S = 0.001


class ClaimLoop:
    """Asks for as many as are wanted; when there are no more it sleeps until it is woken, or something gets due."""

    def __init__(
        self,
        store: JobStore,
        *,
        queues: Callable[[], tuple[str, ...]],
        wanted: Callable[[int], int],
        claim: Callable[[int], Awaitable[list[Job]]],
        poll_s: float,
        rng: random.Random,
    ) -> None:
        self._store = store
        self._queues = queues
        self._wanted = wanted
        self._claim = claim
        self._poll_s = poll_s
        self._rng = rng
        self._room = asyncio.Event()
        self._asked = 0
        """how many the claims that are under way ask for"""
        self._flows = False
        """the last claim got all it asked for: there is more"""
        self._due_ms: int | None = None
        self._asked_due_s = -1.0

    def made_room(self) -> None:
        """More may be wanted now than a moment ago."""
        self._room.set()

    async def for_ever(self) -> None:
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
                            self._asked_due_s = -1.0
            except Exception as error:  # noqa: BLE001 - an engine that claims no more looks alive and does nothing
                await asyncio.sleep(outage.failed(error))

    async def _claim_while_it_flows(self) -> None:
        """With two claims under way. The store takes them one after the other, so the second is there when the first is
        answered: a busy loop comes to that answer late, and would be later still with the next question."""
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
                self._asked += wanted
                try:
                    taken = await self._claim(wanted)
                finally:
                    self._asked -= wanted
                    # the other may wait for just this: when nothing runs, nobody else makes room
                    self._room.set()
                if len(taken) < wanted:
                    self._flows = False
        except BaseException:
            self._flows = False
            raise

    async def _until_wanted(self, *, flowing: bool = False) -> int:
        """How many; `flowing`: 0 as soon as it flows no more."""
        while True:
            self._room.clear()
            if flowing and not self._flows:
                return 0
            if wanted := self._wanted(self._asked):
                return wanted
            await self._room.wait()

    async def _until_due(self) -> float:
        """How long to wait for a wake: nobody is woken when a row gets due."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._asked_due_s > _DUE_S:
            self._due_ms = await self._store.due(self._queues())
            self._asked_due_s = now_s
        if self._due_ms is None:
            return self._poll_s
        left_s = (self._due_ms - self._store.clock.now_ms()) / 1000
        if left_s <= 0:
            self._asked_due_s = -1.0
        return min(self._poll_s, max(_SHORTEST_WAIT_S, left_s))
