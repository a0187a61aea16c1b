"""Asking a store with patience that ends: whoever watches is told that it is away, not left to wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from ...errors import MainstayError, StoreError
from ...model import Job
from ..api.masking import Masker
from ..api.veil import veiled
from ..shelf import Place

T = TypeVar("T")

log = logging.getLogger("mainstay.web.live")

#: drivers try again for much longer than this, which is right for work, and too long for eyes
PATIENCE_S = 5.0


async def asked(place: Place, question: Callable[[], Awaitable[T]], patience_s: float = PATIENCE_S) -> T:
    """The answer; raises `StoreError`, too, when it takes too long."""
    try:
        async with asyncio.timeout(patience_s):
            return await question()
    except TimeoutError:
        error = StoreError(f"{place.url} did not answer within {patience_s:g} s")
        place.missed(error)
        raise error from None


async def trouble(place: Place, look: Callable[[], Awaitable[None]], patience_s: float = PATIENCE_S) -> str:
    """Take a look, and say why it found nothing out; empty if it did. Never raises: those that follow go on."""
    try:
        await asked(place, look, patience_s)
    except MainstayError as error:
        return str(error)
    except Exception:
        log.exception("a look at a store failed store=%s", place.name)
        return "a look at the store failed; the log of the server tells more"
    return ""


def slim(job: Job, masker: Masker) -> Job:
    """Without what may be large, for rows that are kept while somebody watches. What the payload would have masked in
    the job's texts is masked now."""
    return msgspec.structs.replace(veiled(job, masker), payload=b"", result=None)


__all__ = ["PATIENCE_S", "asked", "slim", "trouble"]
