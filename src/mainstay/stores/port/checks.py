"""The part for checks: every stored row as it is, readable or not, and repairs."""

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
    """what a repair did about it"""


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """A row for the check. Columns that cannot be read are listed in `damaged`, and have a harmless value in `job`."""

    job: Job
    events: list[Event]
    """those after `job.trimmed_seq`, in order; all events if that is unreadable"""
    damaged: Mapping[str, str] = {}
    """column -> what is wrong with it"""
    key: Any = None
    """the adapter's own key of the stored row"""


class StoreChecks(Protocol):
    """The methods that `mainstay check` needs."""

    async def audit(self, *, after: str = "", limit: int = 500) -> list[Audited]:
        """One page of all rows with their events, readable or not, in the order of their ids."""
        ...

    async def check(self, *, repair: bool = False, quick: bool = False) -> list[Violation]:
        """Find damage that only the engine can see: file damage, lost uniqueness, stray events and keys, wrong counts,
        a stranded concurrency key, a job that waits for nothing. `repair` fixes findings that have one safe fix.
        `quick` is for a timer: if the full check would keep a server busy, it skips what needs a walk over all rows,
        and runs slowly."""
        ...

    async def mend(self, found: Audited, after: Job, events: Sequence[Event]) -> bool:
        """Rewrite a repaired row, if it has not changed since it was read."""
        ...
