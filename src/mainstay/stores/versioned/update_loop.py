"""Read, decide, write; and again if somebody else was quicker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec

from ...errors import InvalidInput, StoreUnavailable, TooManyConflicts
from .port import Versioned, VersionedStore, WriteUnsure

Change = Callable[[bytes | None], bytes | None]

#: the longest wait between two tries, however many there are
LONGEST_S = 10.0
# from the system: forked processes that drew the same waits would meet again and again
_CHANCE = random.SystemRandom()


class UpdateCounts(msgspec.Struct):
    """What updates cost. Hand the same one to many calls, and look at it whenever you like."""

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
    """Change a value, or make it, whoever else does so at the same time. What is there afterwards.

    `change` gets the value (None: there is none) and returns the new one, or None to leave all as it is. It is called
    again with what is there by then if somebody else was quicker, so it must be pure: look at nothing but its argument
    and touch nothing. Before each further try there is a wait of a random part of `base_s`, doubled every time; after
    `tries` writes that came too late: `TooManyConflicts`.

    After an outage during a write nobody knows whether it was done, so the store is asked. It knows our write from the
    same bytes of another. If others have written meanwhile ours may lie beneath, and `change` decides again: where
    twice does harm, let it leave alone what it finds done. If the store cannot be asked either, or the last try was in
    doubt, `StoreUnavailable` is raised.

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
        await sleep((rng or _CHANCE).uniform(0, min(base_s * 2**n, LONGEST_S)))
        # all of them: one that was on its way for long may be what we have just been in conflict with
        if found := await _found(unsure):
            return found
        if last:
            break
        seen = await store.get(key)
    if failure := outage or (unsure[-1][0] if unsure else None):
        raise failure
    counts.gave_up += 1
    raise TooManyConflicts(key, tries, place=store.place)


async def _found(unsure: list[tuple[WriteUnsure, bytes]]) -> Versioned | None:
    for attempt, value in unsure:
        if version := await attempt.mine():
            return Versioned(value, version)
    return None


async def _write(store: VersionedStore, key: str, value: bytes, seen: Versioned | None) -> Versioned | None:
    made = await (store.put(key, value, seen.version) if seen else store.create_if_absent(key, value))
    return None if made is None else Versioned(value, made)
