"""The store port: what every adapter must do. Data only; no rule about what happens next lives here.

Conventions every adapter keeps (and `tests/conformance` proves):

- Every method takes many at a time. `insert` and each single change of `apply` are atomic: the row, its
  events and everything hung on it are written together, or not at all.
- An answer means durable, to the level the adapter states in `durability`.
- Due times use wall time and leases use lease time, both of the store's clock.
- A stored row that cannot be read is set aside (`Lane.ASIDE`) and the rest of the batch goes on.
- Selection (order, limits, pause) happens here, from stored columns; see `claim`.

The port has three faces, one module each: `jobs`, `directory` (sessions, leadership, queues, limits, schedules) and
`checks`. `JobStore` is all of them. A function that needs one face asks for that protocol.
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
    Stats,
    Trimmed,
    TrimPolicy,
    Written,
)


class Wake(Protocol):
    """A subscription: subscribe, then read, then wait. No wake between the three is lost."""

    async def wait(self, timeout_s: float) -> bool:
        """True when woken, False after the timeout. May wake without need; never misses one."""
        ...

    async def close(self) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class JobStore(JobRepository, Directory, StoreChecks, Protocol):
    """One place where jobs live. Adapters are chosen by URL: `mainstay.stores.open_store`."""

    url: str
    clock: Clock
    chain: Chain
    """seals the events; control computes digests with it, so row and events fit the store's key"""
    durability: str
    """what an answer survives, in words; of an insert with a wish of its own, see `durability_of`"""
    observer: Observer | None
    """told of every move of every row that this process writes, once it is committed; on whatever thread that is, so
    it must be quick. Reports, deletions and repairs are not told. For metrics and tests"""

    async def close(self) -> None:
        """Finish what was accepted, then let go of everything. Safe to call twice."""
        ...

    def durability_of(self, level: Durability) -> str:
        """What an insert at this level survives, in words: the level asked for, and what the engine is configured to
        give. Raises `InvalidInput` for a level that it cannot give."""
        ...

    def wake(self, topics: Sequence[str]) -> Wake:
        """Subscribe to `queue:NAME` (a row got ready, or waits for a sooner time than the others: ask `due` again),
        `job:ID` (it settled), `session:ID` (a job it holds is asked to stop). A queue wakes no more subscribers than
        there were such rows."""
        ...


#: the names of all coroutine methods, for a wrapper that treats every call alike
CALLS = tuple(
    name
    for face in reversed(JobStore.__mro__)
    for name, found in vars(face).items()
    if inspect.iscoroutinefunction(found)
)

__all__ = [
    "CALLS",
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
    "SessionDirectory",
    "Stats",
    "StoreChecks",
    "TrimPolicy",
    "Trimmed",
    "Violation",
    "Wake",
    "Written",
]
