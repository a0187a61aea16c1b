"""A store as the server asks it: every call is answered within a time, or given up; and whether it was is noted.

A store that hangs takes calls and answers none, and drivers are patient: that is right for work, and too long for
whoever looks at a page. What is noted is what the store itself has said: a page that was made of what is remembered
says nothing about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from ..errors import MainstayError, StoreError
from ..stores import JobStore
from ..stores.port import Wake

T = TypeVar("T")

#: how long one call may take
ANSWER_S = 15.0

_METHODS = tuple(
    name for name, found in vars(JobStore).items() if inspect.iscoroutinefunction(found) and name != "close"
)


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
        limit = asyncio.timeout(self._answer_s)
        try:
            async with limit:
                return await call
        except TimeoutError:
            if not limit.expired():
                raise
            raise StoreError(
                f"{self._shown} did not answer within {self._answer_s:g} s; a change may have been made all the same"
            ) from None


def asked_store(store: JobStore, listener: Listener, *, shown: str, answer_s: float = ANSWER_S) -> JobStore:
    """The same store, asked so."""
    return cast("JobStore", AskedStore(store, listener, shown=shown, answer_s=answer_s))


__all__ = ["ANSWER_S", "Listener", "asked_store"]
