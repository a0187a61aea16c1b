"""Asking a store with patience that ends: whoever watches is told that it is away, not left to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...errors import StoreError
from ..shelf import Place

T = TypeVar("T")

#: drivers try again for much longer than this, which is right for work, and too long for eyes
PATIENCE_S = 5.0


async def asked(place: Place, question: Callable[[], Awaitable[T]], patience_s: float = PATIENCE_S) -> T:
    """The answer; raises `StoreError`, too, when it takes too long. Either way it is remembered for `/readyz`."""
    async with place.asking():
        try:
            async with asyncio.timeout(patience_s):
                return await question()
        except TimeoutError:
            raise StoreError(f"{place.url} did not answer within {patience_s:g} s") from None


__all__ = ["PATIENCE_S", "asked"]
