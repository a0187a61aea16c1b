"""A store as the server asks it: every call is answered within a time, or given up; and whether it was is noted.

A store that hangs takes calls and answers none, and drivers are patient: that is right for work, and too long for
whoever looks at a page. What is noted is what the store itself has said: a page that was made of what is remembered
says nothing about it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, cast

from ..errors import MainstayError, StoreError
from ..stores import JobStore
from ..stores.port import CALLS, Wake

T = TypeVar("T")

#: time is counted in steps of this, and in at least this many
_STEP_S, _STEPS = 0.25, 8

#: how long one call may take
ANSWER_S = 15.0

_METHODS = tuple(name for name in CALLS if name != "close")


class Patience:
    """How long the calls of one task may take together."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.left_s = limit_s


_patience: ContextVar[Patience | None] = ContextVar("mainstay_patience", default=None)


@contextlib.contextmanager
def patience(limit_s: float) -> Iterator[None]:
    """All calls of a store made in here may take this long together. What the caller does between them does not
    count."""
    token = _patience.set(Patience(limit_s))
    try:
        yield
    finally:
        _patience.reset(token)


class Listener(Protocol):
    """Who is told how calls ended."""

    def heard(self) -> None: ...
    def missed(self, error: StoreError) -> None: ...


class AskedStore:
    """A store whose calls are limited and noted."""

    def __init__(self, store: JobStore, listener: Listener, *, shown: str, answer_s: float) -> None:
        self._store = store
        self._listener = listener
        self._shown = shown
        self._answer_s = answer_s
        for method in _METHODS:
            setattr(self, method, self._asking(method))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextlib.asynccontextmanager
    async def wake(self, topics: Sequence[str]) -> AsyncIterator[Wake]:
        """To wait is as long as it is wanted; to begin with it is a call like others."""
        async with contextlib.AsyncExitStack() as stack:
            yield await self._within(stack.enter_async_context(self._store.wake(topics)))

    def _asking(self, method: str) -> Callable[..., Awaitable[Any]]:
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


def asked_store(store: JobStore, listener: Listener, *, shown: str, answer_s: float = ANSWER_S) -> JobStore:
    """The same store, asked so."""
    return cast("JobStore", AskedStore(store, listener, shown=shown, answer_s=answer_s))


__all__ = ["ANSWER_S", "Listener", "asked_store"]
