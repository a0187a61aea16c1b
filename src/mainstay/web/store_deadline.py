"""A store as the server asks it: every call is answered within a time, or given up; and whether it was is noted.

A store that hangs takes calls and answers none, and drivers are patient: that is right for work, and too long for
whoever looks at a page. What is noted is what the store itself has said: a page that was made of what is remembered
says nothing about it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from ..errors import MainstayError, StoreError
from ..stores import CALLS, JobStore, StoreMethod, StoreProxy, Wake

T = TypeVar("T")

#: time is counted in steps of this, and in at least this many
_STEP_S, _STEPS = 0.25, 8

#: how long one call may take
ANSWER_S = 15.0

_METHODS = tuple(name for name in CALLS if name != "close")


class StoreDeadline:
    """How long the calls of one task may take together."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.left_s = limit_s


_patience: ContextVar[StoreDeadline | None] = ContextVar("mainstay_patience", default=None)


@contextlib.contextmanager
def store_deadline(limit_s: float) -> Iterator[None]:
    """All calls of a store made in here may take this long together. What the caller does between them does not
    count."""
    token = _patience.set(StoreDeadline(limit_s))
    try:
        yield
    finally:
        _patience.reset(token)


class AnswerListener(Protocol):
    """Who is told how calls ended."""

    def heard(self) -> None: ...
    def missed(self, error: StoreError) -> None: ...


class DeadlineStore(StoreProxy):
    """A store whose calls are limited and noted."""

    def __init__(self, store: JobStore, listener: AnswerListener, *, shown: str, answer_s: float) -> None:
        super().__init__(store)
        self._listener = listener
        self._shown = shown
        self._answer_s = answer_s
        self._replace(self._asking, _METHODS)

    def wake(self, topics: Sequence[str]) -> Wake:
        return _LimitedWake(self._store.wake(topics), self._within)

    def _asking(self, method: str) -> StoreMethod:
        async def ask(*args: Any, **kwargs: Any) -> Any:
            try:
                answer = await self._within(getattr(self._store, method)(*args, **kwargs))
            except StoreError as error:
                self._listener.missed(error)
                raise
            except MainstayError:
                # a refusal is an answer
                self._listener.heard()
                raise
            if not args or args[0]:  # of nothing at all, a store is not asked
                self._listener.heard()
            return answer

        return ask

    async def _within(self, call: Awaitable[T]) -> T:
        given = _patience.get()
        limit_s = self._answer_s if given is None else min(self._answer_s, given.left_s)
        timer = _Timer(limit_s)
        try:
            async with timer.limit:
                return await call
        except TimeoutError:
            if not timer.limit.expired():
                raise
            if given is not None and given.left_s <= self._answer_s:
                raise StoreError(f"{self._shown} did not answer within {given.limit_s:g} s") from None
            raise StoreError(
                f"{self._shown} did not answer within {self._answer_s:g} s; a change may have been made all the same"
            ) from None
        finally:
            timer.stop()
            if given is not None:
                given.left_s -= timer.spent_s


class _LimitedWake:
    """A subscription that must begin within the time of a call; a wait takes as long as its caller wants."""

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
    """Ends a wait after a time in which the event loop was free to hear the answer.

    Counted in short steps. When the loop itself was busy for longer than a step, which is the server's own work, that
    is counted as one step: an answer that came meanwhile is heard before the wait ends.
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
    """The same store, asked so."""
    return DeadlineStore(store, listener, shown=shown, answer_s=answer_s)


__all__ = ["ANSWER_S", "AnswerListener", "with_deadline"]
