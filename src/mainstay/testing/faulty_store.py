"""A store that misbehaves on demand: slow calls, calls that fail, and calls whose answer is lost."""

from __future__ import annotations

import asyncio
import contextvars
import random
from functools import partial
from typing import Any

import msgspec

from ..errors import InvalidInput, StoreUnavailable
from ..stores import CALLS, JobStore, StoreMethod, StoreProxy


class StoreFaults(msgspec.Struct, frozen=True, kw_only=True):
    """How a `FaultyStore` misbehaves. The default is a store without faults."""

    delay_s: float = 0.0
    """each call and each answer takes a random time up to this"""
    lost_calls: float = 0.0
    """part of the calls that fail before the store has seen them: 0.1 is one in ten"""
    lost_answers: float = 0.0
    """part of the calls that fail after the store has done what they asked"""
    unavailable: bool = False
    """every call fails before the store has seen it"""
    calls: tuple[str, ...] = ()
    """the calls that this concerns, such as "apply"; empty: all"""

    def __post_init__(self) -> None:
        if self.delay_s < 0:
            raise InvalidInput("delay_s", f"{self.delay_s} is negative")
        for field in ("lost_calls", "lost_answers"):
            value = getattr(self, field)
            if not 0 <= value <= 1:
                raise InvalidInput(field, f"{value} is not between 0 and 1")
        if unknown := [name for name in self.calls if name not in CALLS]:
            raise InvalidInput("calls", f"a store has no call {unknown[0]!r}; it has {', '.join(CALLS)}")

    def of(self, call: str) -> StoreFaults:
        """The faults of one call."""
        return self if not self.calls or call in self.calls else StoreFaults()


class FaultyStore(StoreProxy):
    """A store behind an unreliable connection. A failed call raises `StoreUnavailable`, and its caller cannot know
    whether it took effect. A call that is cancelled arrives nevertheless. Assign `faults` to change the weather;
    `StoreFaults()` heals it.

    >>> from mainstay.stores import Query
    >>> from mainstay.stores.memory import MemoryStore
    >>> from mainstay.testing import VirtualClock, run_virtual
    >>> store = FaultyStore(MemoryStore(VirtualClock()), rng=random.Random(1), faults=StoreFaults(unavailable=True))
    >>> async def main():
    ...     try:
    ...         await store.find(Query())
    ...     except StoreUnavailable as error:
    ...         print(error)
    ...     store.faults = StoreFaults(delay_s=60)
    ...     return (await store.find(Query())).jobs
    >>> run_virtual(main())
    the call find was lost on the way to the store; it had no effect
    []
    """

    def __init__(self, store: JobStore, *, rng: random.Random, faults: StoreFaults | None = None) -> None:
        super().__init__(store)
        self.faults = faults or StoreFaults()
        self._rng = rng
        self._replace(self._method, [name for name in CALLS if name != "close"])

    def _method(self, name: str) -> StoreMethod:
        call = getattr(self._store, name)

        async def carry(*args: Any, **options: Any) -> Any:
            faults = self.faults.of(name)
            await self._travel(faults)
            faults = self.faults.of(name)
            if self._is_lost(faults.lost_calls) or faults.unavailable:
                raise StoreUnavailable(f"the call {name} was lost on the way to the store; it had no effect")
            answer = await call(*args, **options)
            await self._travel(faults)
            if self._is_lost(faults.lost_answers):
                raise StoreUnavailable(f"the answer to {name} was lost; the call took effect")
            return answer

        async def faulty(*args: Any, **options: Any) -> Any:
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[Any] = loop.create_future()
            # in a context of its own: a call that was sent arrives, also if its caller is cancelled, frozen or dead
            on_the_way = loop.create_task(carry(*args, **options), context=contextvars.Context())
            on_the_way.add_done_callback(partial(_deliver, answer))
            return await answer

        return faulty

    async def _travel(self, faults: StoreFaults) -> None:
        if faults.delay_s:
            await asyncio.sleep(faults.delay_s * self._rng.random())

    def _is_lost(self, share: float) -> bool:
        return self._rng.random() < share


def _deliver(answer: asyncio.Future[Any], call: asyncio.Task[Any]) -> None:
    if call.cancelled():
        answer.cancel()
        return
    error = call.exception()
    if answer.done():
        return
    if error is None:
        answer.set_result(call.result())
    else:
        answer.set_exception(error)
        answer.exception()  # marks it as seen: the caller may be gone


__all__ = ["FaultyStore", "StoreFaults"]
