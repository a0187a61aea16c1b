"""Reads of a store with a deadline, so that clients learn that it does not answer."""

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

#: drivers retry for much longer, which is right for workers and too long for a page
DEADLINE_S = 5.0


async def within_deadline(read: Callable[[], Awaitable[T]], deadline_s: float = DEADLINE_S) -> T:
    """The result of a read; raises `StoreError` if the store takes too long. The time of the server itself, for
    searching and masking, does not count."""
    with store_deadline(deadline_s):
        return await read()


async def failure_of(served: ServedStore, read: Callable[[], Awaitable[None]], deadline_s: float = DEADLINE_S) -> str:
    """Run a read; the error, or an empty text. It never raises, so that followers continue."""
    try:
        await within_deadline(read, deadline_s)
    except MainstayError as error:
        return str(error)
    except Exception:
        log.exception("a read of a store failed store=%s", served.name)
        return "reading the store failed; see the log of the server"
    return ""


async def without_values(store: JobStore, jobs: Sequence[Job], masker: Masker) -> list[Job]:
    """Rows without large values, which are kept while a client follows them. Their texts are masked here, since that
    needs the payload."""
    shown = await shown_jobs(store, jobs, masker)
    return [msgspec.structs.replace(job, payload=b"", result=None) for job in shown]


__all__ = ["DEADLINE_S", "failure_of", "within_deadline", "without_values"]
