"""A queue for small inserts: jobs that arrive while one insert runs are stored together by the next.

A commit costs the server a sync of its disk, whether it holds one job or a thousand. Therefore, callers share a commit,
and none of them waits for more than the insert before its own. Only jobs that cannot be refused on their own share:
those without a key, a parent or jobs to wait for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

from ....errors import StoreError, StoreFull, StoreLocked, StoreReadOnly, StoreUnavailable
from ....lifecycle import Chain
from ....model import Leadership
from ...durability import Durability
from ...port import InsertResult, NewJob
from ..connection.engine import PostgresEngine
from .changes import insert

_MOST_ROWS, _MOST_BYTES = 1000, 1 << 20
#: a larger call is already a batch, and would only make others wait
_FEW = 100
#: errors of the server, which concern all callers
_SERVER_ERRORS = (StoreUnavailable, StoreLocked, StoreFull, StoreReadOnly)

Store = Callable[[Sequence[NewJob]], Awaitable[list[InsertResult]]]


class InsertQueue:
    """The inserts of one open store. Runs on its home loop."""

    def __init__(self, engine: PostgresEngine, chain: Chain) -> None:
        self._engine = engine
        self._chain = chain
        self._lines: dict[str, _InsertLine] = {}

    async def insert(
        self, jobs: Sequence[NewJob], *, durability: Durability | None = None, lead: Leadership | None = None
    ) -> list[InsertResult]:
        """Insert all or nothing. The jobs of a leader share no commit: they are refused if its epoch is over."""

        async def store(several: Sequence[NewJob]) -> list[InsertResult]:
            return await insert(self._engine, several, self._chain, durability=durability, lead=lead)

        if lead is not None or len(jobs) > _FEW or not all(map(_is_plain, jobs)):
            return await store(jobs)
        level = self._engine.level(durability)
        line = self._lines.get(level)
        if line is None:
            line = self._lines[level] = _InsertLine(store)
        return await line.enter(jobs)


def _is_plain(new: NewJob) -> bool:
    return not (new.key or new.job.unique_key or new.job.parent or new.after or new.must_be_new)


class _InsertLine:
    """The inserts of one level of durability: one at a time, and a queue of waiting calls."""

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
        """Start the next insert with the waiting calls."""
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
            # the same job twice is a retry: the second insert finds the first
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
                call.answer.cancel()  # of calls without a result: this task was cancelled
            self._admit()

    async def _answer(self, calls: list[_Call]) -> None:
        calls = [call for call in calls if not call.answer.done()]
        if not calls:
            return
        try:
            results = iter(await self._store([new for call in calls for new in call.jobs]))
        except _SERVER_ERRORS as error:
            for call in calls:
                call.refuse(_copied(error))
        except Exception as error:  # noqa: BLE001 - it is passed to its caller
            if len(calls) == 1:
                calls[0].refuse(error)
                return
            # Nothing was written, perhaps because of one call: retry by halves, until each failing call fails alone
            half = len(calls) // 2
            await self._answer(calls[:half])
            await self._answer(calls[half:])
        else:
            for call in calls:
                answers = list(islice(results, len(call.jobs)))
                if not call.answer.done():
                    call.answer.set_result(answers)


class _Call:
    """A waiting call."""

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs
        self.ids = {new.job.id for new in jobs}
        self.answer: asyncio.Future[list[InsertResult]] = asyncio.get_running_loop().create_future()
        self.group: _Group | None = None

    def refuse(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    async def leave(self) -> None:
        """Handle the cancellation of this call. The rest of its group continues; the last one to leave cancels it."""
        if self.group is not None and all(call.answer.done() for call in self.group.calls):
            self.group.task.cancel()
            await asyncio.wait([self.group.task])


class _Group:
    def __init__(self, calls: Sequence[_Call], task: asyncio.Task[None]) -> None:
        self.calls = calls
        self.task = task


def _copied(error: StoreError) -> StoreError:
    """A copy for each caller: a raised error collects the traceback of its caller."""
    copy = type(error)(str(error))
    copy.__cause__ = error
    return copy
