"""Until when a process may send: if it was suspended, its part of the load may be another machine's when it goes on."""

from __future__ import annotations

import asyncio
import math

from ...event_loop import boot_time


class SendLease:
    """Every client asks it before it writes a call. It has no end, except in the generators of a node: what leads them
    renews it, and a process that continues after a suspension finds it over before anything is sent.

    >>> lease = SendLease()
    >>> lease.is_over()
    False
    """

    __slots__ = ("_until_s", "_waiters")

    def __init__(self) -> None:
        self._until_s = math.inf
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def left_s(self) -> float:
        """How long it lasts; below 0 if it is over."""
        return self._until_s - boot_time()

    def is_over(self) -> bool:
        """Whether nothing may be sent."""
        return self._until_s != math.inf and boot_time() > self._until_s

    def set(self, until_s: float) -> None:
        """It ends at this time of `boot_time`."""
        self._until_s = until_s
        if not self.is_over():
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until something may be sent."""
        while self.is_over():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)


__all__ = ["SendLease"]
