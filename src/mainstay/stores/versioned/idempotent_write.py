"""Writing exactly once over a connection that loses responses.

A driver that repeats a conditional write after a lost response may get a conflict with its own first attempt. So
drivers repeat no write. The functions here do, and recognize their own write by the version that it carries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...errors import StoreUnavailable
from .port import WriteUnsure

T = TypeVar("T")

BASE_S = 0.05


async def read_again(
    read: Callable[[], Awaitable[T]], *, tries: int, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> T:
    """Read, and repeat it after an outage: reading twice does no harm."""
    for tried in range(1, tries):
        try:
            return await read()
        except StoreUnavailable:
            await sleep(BASE_S * 2**tried)
    return await read()


async def write_once(
    write: Callable[[], Awaitable[str | None]],
    mine: Callable[[], Awaitable[str | None]],
    *,
    tries: int,
    what: str,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> str | None:
    """Write, and repeat it after an outage. Returns the new version, or None for a conflict.

    `write` returns the same, or raises `StoreUnavailable`. `mine` returns the version of the stored value if it is our
    write. Raises `WriteUnsure` if the outcome stays unknown.
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
            f"{what} may or may not have been written: the response was lost, and another process has written since; "
            f"read it again",
            mine,
        )
    return None
