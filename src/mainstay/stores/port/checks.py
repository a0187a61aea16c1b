"""The face of checks: every stored row as it is, readable or not, and repairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ...lifecycle import Event
from ...model import Job


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One broken invariant."""

    code: str
    message: str
    job_id: str | None = None
    repaired: str | None = None
    """what `--repair` did about it"""


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """A row as the check sees it: readable parts as a `Job`, the rest named.

    What could not be read is listed in `damaged` and has a harmless stand-in in `job`.
    """

    job: Job
    events: list[Event]
    """after `job.trimmed_seq`, in order; all there are when that is unreadable"""
    damaged: Mapping[str, str] = {}
    """column -> what is wrong with it"""
    key: Any = None
    """the adapter's own handle on the stored row"""


class StoreChecks(Protocol):
    """What `mainstay check` asks a store for."""

    async def audit(self, *, after: str = "", limit: int = 500) -> list[Audited]:
        """Rows by id with their events, readable or not; a short page of a long walk."""
        ...

    async def check(self, *, repair: bool = False, quick: bool = False) -> list[Violation]:
        """What only the engine can see: file damage, lost uniqueness, stray events and keys, counters that
        disagree with the rows, a stranded concurrency key, a job that waits for nothing any more. Repairs what has
        one safe answer. `quick` is for a timer: where the whole of it would keep a server busy, it leaves out what only
        a walk over everything shows, and takes its time."""
        ...

    async def mend(self, found: Audited, after: Job, events: Sequence[Event]) -> bool:
        """Write a repaired row whole, if it is still as it was found."""
        ...
