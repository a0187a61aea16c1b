"""Writing once over a wire that loses answers.

A driver that tries a conditional write again after it heard nothing may be told of a conflict with its own first try.
So drivers try no write again; this does, and tells a conflict with others from one with itself by what is written,
which carries a version of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...errors import StoreUnavailable
from .port import WriteUnsure

T = TypeVar("T")

BASE_S = 0.05


async def read(
    ask: Callable[[], Awaitable[T]], *, tries: int, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> T:
    """Ask again after an outage: reading twice does no harm."""
    for tried in range(1, tries):
        try:
            return await ask()
        except StoreUnavailable:
            await sleep(BASE_S * 2**tried)
    return await ask()


async def written(
    write: Callable[[], Awaitable[str | None]],
    mine: Callable[[], Awaitable[str | None]],
    *,
    tries: int,
    what: str,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> str | None:
    """The version of what was written, or None for a conflict.

    `write` answers so, or raises StoreUnavailable; `mine` says the version of what is there if it is ours. Where that
    does not settle it: WriteUnsure.
    """
    for tried in range(tries):
        if tried:
            await sleep(BASE_S * 2**tried)
        try:
            version = await write()
        except StoreUnavailable as error:
            if tried == tries - 1:
                raise WriteUnsure(str(error), mine) from error
            continue
        if version is not None or not tried:
            return version
        if found := await mine():
            return found
        raise WriteUnsure(
            f"{what} may or may not have been written: the answer was lost, and another process has written since; "
            f"read it again",
            mine,
        )
    return None
