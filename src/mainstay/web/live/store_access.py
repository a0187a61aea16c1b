"""Asking a store with patience that ends: whoever watches is told that it is away, not left to wait."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from ...errors import MainstayError
from ...model import Job
from ...stores import JobStore
from ..api.masker import Masker
from ..api.text_mask import shown_jobs
from ..store_deadline import store_deadline
from ..stores import ServedStore

T = TypeVar("T")

log = logging.getLogger("mainstay.web.live")

#: drivers try again for much longer than this, which is right for work, and too long for eyes
PATIENCE_S = 5.0


async def within_deadline(question: Callable[[], Awaitable[T]], patience_s: float = PATIENCE_S) -> T:
    """The answer; raises `StoreError`, too, when the store takes too long. What the server itself takes, to search and
    to mask what the store answered, does not count."""
    with store_deadline(patience_s):
        return await question()


async def failure_of(served: ServedStore, look: Callable[[], Awaitable[None]], patience_s: float = PATIENCE_S) -> str:
    """Take a look, and say why it found nothing out; empty if it did. Never raises: those that follow go on."""
    try:
        await within_deadline(look, patience_s)
    except MainstayError as error:
        return str(error)
    except Exception:
        log.exception("a look at a store failed store=%s", served.name)
        return "a look at the store failed; the log of the server tells more"
    return ""


async def without_values(store: JobStore, jobs: Sequence[Job], masker: Masker) -> list[Job]:
    """Without what may be large, for rows that are kept while a client watches. What the payload would have masked in
    a job's texts is masked now."""
    shown = await shown_jobs(store, jobs, masker)
    return [msgspec.structs.replace(job, payload=b"", result=None) for job in shown]


__all__ = ["PATIENCE_S", "failure_of", "within_deadline", "without_values"]
