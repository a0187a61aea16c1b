"""A store whose calls have a deadline. The result of each call is noted, for the health of the server.

A store that hangs accepts calls and answers none, and drivers wait long: right for workers, too long for the reader of
a page. Only answers of the store itself are noted: a page from cached data says nothing about the store.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from ..errors import MainstayError, Overloaded, StoreError
from ..stores import CALLS, JobStore, StoreMethod, StoreProxy, Wake

T = TypeVar("T")

#: time is counted in steps of this, and in at least this many
_STEP_S, _STEPS = 0.25, 8

#: the longest time of one call
ANSWER_S = 15.0

_METHODS = tuple(name for name in CALLS if name != "close")


class StoreDeadline:
    """The time that all calls of one task may take together."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.left_s = limit_s


_deadline: ContextVar[StoreDeadline | None] = ContextVar("mainstay_store_deadline", default=None)


@contextlib.contextmanager
def store_deadline(limit_s: float) -> Iterator[None]:
    """All calls of a store within this context may take this long together. The time between the calls does not
    count."""
    token = _deadline.set(StoreDeadline(limit_s))
    try:
        yield
    finally:
        _deadline.reset(token)


class AnswerListener(Protocol):
    """Receives the results of calls."""

    def note_answer(self) -> None: ...
    def note_failure(self, error: StoreError) -> None: ...


class DeadlineStore(StoreProxy):
    """A store whose calls have a deadline."""

    def __init__(self, store: JobStore, listener: AnswerListener, *, shown: str, answer_s: float) -> None:
        super().__init__(store)
        self._listener = listener
        self._shown = shown
        self._answer_s = answer_s
        self._replace(self._limited, _METHODS)

    def wake(self, topics: Sequence[str]) -> Wake:
        return _LimitedWake(self._store.wake(topics), self._within)

    def _limited(self, method: str) -> StoreMethod:
        async def call(*args: Any, **kwargs: Any) -> Any:
            try:
                answer = await self._within(getattr(self._store, method)(*args, **kwargs))
            except MainstayError as error:
                if isinstance(error, StoreError) and not isinstance(error, Overloaded):
                    self._listener.note_failure(error)
                else:  # a refusal is an answer
                    self._listener.note_answer()
                raise
            if not args or args[0]:  # a call about no rows does not reach the store
                self._listener.note_answer()
            return answer

        return call

    async def _within(self, answer: Awaitable[T]) -> T:
        deadline = _deadline.get()
        limit_s = self._answer_s if deadline is None else min(self._answer_s, deadline.left_s)
        timer = _Timer(limit_s)
        try:
            async with timer.limit:
                return await answer
        except TimeoutError:
            if not timer.limit.expired():
                raise
            if deadline is not None and deadline.left_s <= self._answer_s:
                raise StoreError(f"{self._shown} did not answer within {deadline.limit_s:g} s") from None
            raise StoreError(
                f"{self._shown} did not answer within {self._answer_s:g} s; a change may have been made nevertheless"
            ) from None
        finally:
            timer.stop()
            if deadline is not None:
                deadline.left_s -= timer.spent_s


class _LimitedWake:
    """A subscription that must start within the deadline of a call; a wait takes as long as its caller wants."""

    def __init__(self, wake: Wake, within: Callable[[Awaitable[Any]], Awaitable[Any]]) -> None:
        self._wake = wake
        self._within = within

    async def wait(self, timeout_s: float) -> bool:
        return await self._wake.wait(timeout_s)

    async def close(self) -> None:
        await self._wake.close()

    async def __aenter__(self) -> Self:
        await self._within(self._wake.__aenter__())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._wake.__aexit__(kind, error, trace)


class _Timer:
    """Ends a wait after a time in which the event loop was free to receive the answer.

    It counts in short steps. If the loop was busy with the server's own work for longer than a step, that counts as one
    step, so that an answer which arrived by then is received before the wait ends.
    """

    def __init__(self, limit_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit_s = limit_s
        self._longest_s = min(_STEP_S, limit_s / _STEPS)
        self._steps_s = 0.0
        self._step_began_s = self._loop.time()
        self.limit = asyncio.timeout(None)
        self._handle = self._loop.call_later(self._longest_s, self._step)

    @property
    def spent_s(self) -> float:
        """The time that was counted."""
        return self._steps_s + min(self._longest_s, self._loop.time() - self._step_began_s)

    def stop(self) -> None:
        self._handle.cancel()

    def _step(self) -> None:
        self._steps_s = self.spent_s
        self._step_began_s = self._loop.time()
        left_s = self._limit_s - self._steps_s
        if left_s <= 0:
            self.limit.reschedule(self._loop.time())
        else:
            self._handle = self._loop.call_later(min(self._longest_s, left_s), self._step)


def with_deadline(store: JobStore, listener: AnswerListener, *, shown: str, answer_s: float = ANSWER_S) -> JobStore:
    """The same store with deadlines."""
    return DeadlineStore(store, listener, shown=shown, answer_s=answer_s)


__all__ = ["ANSWER_S", "AnswerListener", "with_deadline"]
