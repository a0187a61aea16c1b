"""The store port: the contract of every adapter. It holds data; no rule about what happens next is here.

Conventions of every adapter, tested by `tests/conformance`:

- Every method takes many at a time. `insert` and each single change of `apply` are atomic: the row, its events and
  everything that belongs to it are written together, or not at all.
- A call that returns is durable, to the level that the adapter states in `durability`.
- Due times use wall time and leases use lease time, both of the store's clock.
- A stored row that cannot be read is set aside (`Lane.ASIDE`), and the rest of the batch continues.
- Selection (order, limits, pause) happens here, from stored columns; see `claim`.

The port has three parts, one module each: `jobs`, `directory` (sessions, leadership, queues, limits, schedules) and
`checks`. `JobStore` is all of them. A function that needs one part takes that protocol.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from ...clock import Clock
from ...lifecycle import Chain
from ..durability import Durability
from .checks import Audited, StoreChecks, Violation
from .directory import (
    Directory,
    LeadershipDirectory,
    LimitDirectory,
    Pulse,
    QueueDirectory,
    ScheduleDirectory,
    SessionDirectory,
)
from .jobs import (
    MARKS_KEPT,
    AnyChange,
    Change,
    ChangeResult,
    ClaimReport,
    Deletion,
    InsertResult,
    JobRepository,
    Key,
    NewJob,
    Observer,
    Outcome,
    Overdue,
    Page,
    Query,
    QueueStats,
    RefusedWrite,
    SealedChange,
    Stats,
    Trimmed,
    TrimPolicy,
    Written,
)


class Wake(Protocol):
    """A subscription: subscribe, then read, then wait. No wake between the three is lost."""

    async def wait(self, timeout_s: float) -> bool:
        """True when woken, False after the timeout. It may wake without need, but never misses a wake."""
        ...

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class JobStore(JobRepository, Directory, StoreChecks, Protocol):
    """One place where jobs live. Adapters are chosen by URL: `mainstay.stores.open_store`."""

    url: str
    clock: Clock
    chain: Chain
    """seals the events; control computes digests with it, so that rows and events match the store's key"""
    durability: str
    """what a returned call survives, in words; for an insert with its own level, see `durability_of`"""
    observer: Observer | None
    """called after each commit of this process with the rows that it wrote, on any thread; it must be fast. Reports,
    deletions and repairs are left out. For metrics and tests"""

    async def close(self) -> None:
        """Finish all accepted calls, then release everything. Safe to call twice."""
        ...

    def durability_of(self, level: Durability) -> str:
        """What an insert at this level survives, in words: the requested level, and what the engine is configured to
        give. Raises `InvalidInput` for a level that it cannot give."""
        ...

    def wake(self, topics: Sequence[str]) -> Wake:
        """Subscribe to `queue:NAME` (a row became ready, or is due before all others: call `due` again), `job:ID` (it
        settled), `session:ID` (a job it holds is asked to stop or was taken from it, or a row was assigned to it). A
        queue wakes at most as many subscribers as it has such rows; `queue:@place` wakes for every change of a status
        in it. `placement` wakes all its subscribers when the status of a row in `@place` or `@lead` changes."""
        ...


def is_managed(store: JobStore) -> bool:
    """Whether the store is reached through a manager, as by a node: managers sweep, lead and store schedules."""
    return bool(getattr(store, "managed", False))


#: the names of all coroutine methods, for a wrapper that treats all calls alike
CALLS = tuple(
    name
    for part in reversed(JobStore.__mro__)
    for name, method in vars(part).items()
    if inspect.iscoroutinefunction(method)
)

__all__ = [
    "CALLS",
    "MARKS_KEPT",
    "AnyChange",
    "Audited",
    "Change",
    "ChangeResult",
    "ClaimReport",
    "Deletion",
    "Directory",
    "InsertResult",
    "JobRepository",
    "JobStore",
    "Key",
    "LeadershipDirectory",
    "LimitDirectory",
    "NewJob",
    "Observer",
    "Outcome",
    "Overdue",
    "Page",
    "Pulse",
    "Query",
    "QueueDirectory",
    "QueueStats",
    "RefusedWrite",
    "ScheduleDirectory",
    "SealedChange",
    "SessionDirectory",
    "Stats",
    "StoreChecks",
    "TrimPolicy",
    "Trimmed",
    "Violation",
    "Wake",
    "Written",
    "is_managed",
]
