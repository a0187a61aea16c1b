"""Read, decide, write; and again if another writer was faster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec

from ...errors import InvalidInput, StoreUnavailable, TooManyConflicts
from .port import Versioned, VersionedStore, WriteUnsure

Change = Callable[[bytes | None], bytes | None]

#: the longest wait between two attempts
LONGEST_S = 10.0
# from the operating system: forked processes that drew the same waits would conflict again and again
_SYSTEM_RANDOM = random.SystemRandom()


class UpdateCounts(msgspec.Struct):
    """The cost of updates. Pass the same object to many calls, and read it at any time."""

    updates: int = 0
    """calls"""
    conflicts: int = 0
    """writes that came too late"""
    retries: int = 0
    """writes after the first of a call"""
    gave_up: int = 0
    """calls that ended in `TooManyConflicts`"""


async def update(
    store: VersionedStore,
    key: str,
    change: Change,
    *,
    tries: int = 5,
    base_s: float = 0.1,
    counts: UpdateCounts | None = None,
    rng: random.Random | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Versioned | None:
    """Change or create a value beside other writers. Returns the value that is stored afterwards.

    `change` gets the value (None: there is none) and returns the new one, or None to change nothing. If another writer
    was faster, it is called again with the new value, so it must be pure: it uses only its argument and has no side
    effects. Before each further attempt there is a wait of a random part of `base_s`, doubled every time. After `tries`
    writes that came too late, `TooManyConflicts` is raised.

    After an outage during a write, the outcome is unknown, so the store is asked. It can tell our write from another
    one with the same bytes. If others have written since, ours may be beneath theirs, and `change` decides again: if
    doing it twice does harm, let it recognize what it has already done. If the store cannot be asked either, or the
    outcome of the last attempt is unknown, `StoreUnavailable` is raised.

    >>> from mainstay.stores.versioned import open_versioned
    >>> async def count_to_two():
    ...     store = await open_versioned("memory:")
    ...     for _ in range(2):
    ...         counted = await update(store, "visits", lambda value: b"%d" % (int(value or 0) + 1))
    ...     return counted.value
    >>> asyncio.run(count_to_two())
    b'2'
    """
    if tries < 1:
        raise InvalidInput("tries", f"{tries!r} is not a whole number from 1")
    counts = counts if counts is not None else UpdateCounts()
    counts.updates += 1
    seen = await store.get(key)
    unsure: list[tuple[WriteUnsure, bytes]] = []
    outage: StoreUnavailable | None = None
    for n in range(tries):
        wanted = change(seen.value if seen else None)
        if wanted is None:
            return seen
        counts.retries += n > 0
        outage = None
        try:
            written = await _write(store, key, wanted, seen)
        except StoreUnavailable as error:
            outage = error
            if isinstance(error, WriteUnsure):
                unsure.append((error, wanted))
        else:
            if written:
                return written
            counts.conflicts += 1
        last = n == tries - 1
        if last and not unsure:
            break
        await sleep((rng or _SYSTEM_RANDOM).uniform(0, min(base_s * 2**n, LONGEST_S)))
        # all of them: a delayed write of our own may have caused the last conflict
        if stored := await _own_write(unsure):
            return stored
        if last:
            break
        seen = await store.get(key)
    if failure := outage or (unsure[-1][0] if unsure else None):
        raise failure
    counts.gave_up += 1
    raise TooManyConflicts(key, tries, place=store.place)


async def _own_write(unsure: list[tuple[WriteUnsure, bytes]]) -> Versioned | None:
    for attempt, value in unsure:
        if version := await attempt.mine():
            return Versioned(value, version)
    return None


async def _write(store: VersionedStore, key: str, value: bytes, seen: Versioned | None) -> Versioned | None:
    version = await (store.put(key, value, seen.version) if seen else store.create_if_absent(key, value))
    return None if version is None else Versioned(value, version)
