"""Jobs that come one at a time, stored together: what arrives while one insert is under way goes with the next.

A commit costs the server a sync of its disk, whether it holds one job or a thousand. So many submitters share one,
and none of them waits longer than for the insert before its own. Only jobs with which nothing can go wrong on their own
account share: no key, no parent, nobody they wait for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

from ....errors import StoreError, StoreFull, StoreLocked, StoreReadOnly, StoreUnavailable
from ....lifecycle import Chain
from ...durability import Durability
from ...port import InsertResult, NewJob
from ..connection.engine import PostgresEngine
from .changes import insert

_MOST_ROWS, _MOST_BYTES = 1000, 1 << 20
#: a call of more is a batch already, and would only make others wait
_FEW = 100
#: what is the matter with the server, whoever asks
_EVERYBODYS = (StoreUnavailable, StoreLocked, StoreFull, StoreReadOnly)

Store = Callable[[Sequence[NewJob]], Awaitable[list[InsertResult]]]


class InsertQueue:
    """The way in for new jobs of one open store. On its home loop."""

    def __init__(self, engine: PostgresEngine, chain: Chain) -> None:
        self._engine = engine
        self._chain = chain
        self._doors: dict[str, _Door] = {}

    async def insert(self, jobs: Sequence[NewJob], *, durability: Durability | None = None) -> list[InsertResult]:
        """Insert all or nothing."""

        async def store(several: Sequence[NewJob]) -> list[InsertResult]:
            return await insert(self._engine, several, self._chain, durability=durability)

        if len(jobs) > _FEW or not all(map(_is_plain, jobs)):
            return await store(jobs)
        level = self._engine.level(durability)
        door = self._doors.get(level)
        if door is None:
            door = self._doors[level] = _Door(store)
        return await door.enter(jobs)


def _is_plain(new: NewJob) -> bool:
    return not (new.key or new.job.unique_key or new.job.parent or new.after or new.must_be_new)


class _Door:
    """Of all with one level of durability: one insert at a time, and a row of those who came meanwhile."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._busy = False
        self._waiting: deque[_Call] = deque()

    async def enter(self, jobs: Sequence[NewJob]) -> list[InsertResult]:
        if not self._busy:
            self._busy = True
            try:
                return await self._store(jobs)
            finally:
                self._admit()
        call = _Call(jobs)
        self._waiting.append(call)
        try:
            return await call.answer
        except asyncio.CancelledError:
            await call.leave()
            raise

    def _admit(self) -> None:
        """Let in who waits."""
        calls = self._next()
        if not calls:
            self._busy = False
            return
        group = _Group(calls, asyncio.get_running_loop().create_task(self._together(calls)))
        for call in calls:
            call.group = group

    def _next(self) -> list[_Call]:
        calls: list[_Call] = []
        ids: set[str] = set()
        rows = size = 0
        while self._waiting:
            call = self._waiting[0]
            rows += len(call.jobs)
            size += sum(len(new.job.payload) for new in call.jobs)
            # the same job twice is one that was asked for again: the second finds the first
            if calls and (rows > _MOST_ROWS or size > _MOST_BYTES or not ids.isdisjoint(call.ids)):
                break
            self._waiting.popleft()
            if not call.answer.done():
                calls.append(call)
                ids |= call.ids
        return calls

    async def _together(self, calls: list[_Call]) -> None:
        try:
            await self._answer(calls)
        finally:
            for call in calls:
                call.answer.cancel()  # of those who have none: this was ended from outside
            self._admit()

    async def _answer(self, calls: list[_Call]) -> None:
        calls = [call for call in calls if not call.answer.done()]
        if not calls:
            return
        try:
            made = iter(await self._store([new for call in calls for new in call.jobs]))
        except _EVERYBODYS as error:
            for call in calls:
                call.refuse(_once_more(error))
        except Exception as error:  # noqa: BLE001 - the caller it belongs to gets it
            if len(calls) == 1:
                calls[0].refuse(error)
                return
            # Nothing was written, and it may be the fault of one: by halves, until each that fails has failed alone
            half = len(calls) // 2
            await self._answer(calls[:half])
            await self._answer(calls[half:])
        else:
            for call in calls:
                answers = list(islice(made, len(call.jobs)))
                if not call.answer.done():
                    call.answer.set_result(answers)


class _Call:
    """Somebody who waits for an answer."""

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs
        self.ids = {new.job.id for new in jobs}
        self.answer: asyncio.Future[list[InsertResult]] = asyncio.get_running_loop().create_future()
        self.group: _Group | None = None

    def refuse(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    async def leave(self) -> None:
        """It was cancelled. The others of its group go on; the last to leave ends it."""
        if self.group is not None and all(call.answer.done() for call in self.group.calls):
            self.group.task.cancel()
            await asyncio.wait([self.group.task])


class _Group:
    def __init__(self, calls: Sequence[_Call], task: asyncio.Task[None]) -> None:
        self.calls = calls
        self.task = task


def _once_more(error: StoreError) -> StoreError:
    """For each caller one of its own: who catches an error adds to it."""
    again = type(error)(str(error))
    again.__cause__ = error
    return again
