"""The face of the directory: sessions, leadership, queue settings, limits and schedules.

Small tables beside the jobs, one protocol each. Their records are plain data: `model.records`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ...model import Leadership, QueueSettings, Schedule, Session
from .jobs import ClaimReport, InsertResult, NewJob


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """The store's answer to one session's beat."""

    session: str
    known: bool
    """False: the session was declared dead or never opened. Its claims are gone; stop their work"""
    cancelling: tuple[str, ...] = ()
    """jobs it holds that are asked to stop"""
    draining_by: str | None = None
    """who asked it to drain: to take no more jobs, finish what it holds, and end. None: nobody"""


class SessionDirectory(Protocol):
    """The sessions of workers: one per engine process."""

    async def open_session(self, session: Session) -> None:
        """Open it, or take a new offer of one that is open."""
        ...

    async def beat(self, sessions: Sequence[str], reports: Sequence[ClaimReport] = ()) -> list[Pulse]:
        """Keep sessions alive, in one write, with whatever they have to report."""
        ...

    async def drain(self, sessions: Sequence[str], *, by: str) -> list[bool]:
        """Ask sessions to drain: each hears it with its next beat. The first who asked stays on record. False for one
        that is dead or not known."""
        ...

    async def close_session(self, session: str) -> None:
        """Forget a session. Rows it still holds are overdue at once."""
        ...

    async def sessions(self) -> list[Session]: ...


class LeadershipDirectory(Protocol):
    """Which session leads, under which epoch."""

    async def lead(self, name: str, session: str, ttl_s: float) -> Leadership:
        """Take, keep or read the leadership: whoever holds it now is in the answer. It passes on, under a new epoch,
        when its time is over, and at once when the session that holds it is known to be dead."""
        ...

    async def resign(self, lead: Leadership) -> None:
        """Give leadership up early, if it is still held."""
        ...


class QueueDirectory(Protocol):
    """What operators set for queues."""

    async def set_queue(self, settings: QueueSettings) -> None: ...
    async def queues(self) -> list[QueueSettings]: ...


class LimitDirectory(Protocol):
    """How many jobs of a concurrency key may be held at a time."""

    async def set_limit(self, key: str, most: int | None) -> None:
        """At most this many held rows per concurrency key; None lifts the limit. Frees blocked rows."""
        ...

    async def limits(self) -> dict[str, int]: ...


class ScheduleDirectory(Protocol):
    """Schedules and their ticks."""

    async def put_schedule(self, schedule: Schedule) -> None:
        """Store or replace. Of an existing one `paused` is kept (an operator set it), and `last_tick_ms` unless the
        new one is later."""
        ...

    async def pause_schedule(self, name: str, *, paused: bool) -> bool:
        """Pause or resume; False if there is no such schedule."""
        ...

    async def schedules(self) -> list[Schedule]: ...
    async def drop_schedule(self, name: str) -> bool: ...

    async def tick(
        self, name: str, at_ms: int, jobs: Sequence[NewJob], *, lead: Leadership | None = None
    ) -> list[InsertResult] | None:
        """Insert a tick's jobs and remember the tick, once: None if (schedule, time) was ticked before."""
        ...


class Directory(SessionDirectory, LeadershipDirectory, QueueDirectory, LimitDirectory, ScheduleDirectory, Protocol):
    """All small tables of a store."""
