"""The directory: sessions, leadership, queue settings, limits and schedules.

Small tables beside the jobs, with one protocol each. Their records are plain data: `model.records`.
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
    """False: the session was declared dead or never opened. Its claims are lost; stop their work"""
    cancelling: tuple[str, ...] = ()
    """the jobs it holds that must stop"""
    assigned: tuple[str, ...] = ()
    """the rows that a leader assigned to it and that it has not confirmed yet (`dispatched`)"""
    draining_by: str | None = None
    """who asked it to drain: to claim no more jobs, finish those it holds, and end. None: it need not drain"""


class SessionDirectory(Protocol):
    """The sessions of workers: one per engine process."""

    async def open_session(self, session: Session) -> None:
        """Open a session, or update the offer of an open one, which stays asked to drain if it was."""
        ...

    async def beat(self, sessions: Sequence[str], reports: Sequence[ClaimReport] = ()) -> list[Pulse]:
        """Keep sessions alive and record their reports, in one write."""
        ...

    async def drain(self, sessions: Sequence[str], *, by: str) -> list[bool]:
        """Ask sessions to drain. Each learns it with its next beat. The first caller stays on record. False for a
        session that is dead or unknown."""
        ...

    async def close_session(self, session: str, *, lead: Leadership | None = None) -> None:
        """End a session. Rows that it still holds are overdue at once. With `lead`, raises `NotLeader` and ends nothing
        if that epoch is over."""
        ...

    async def sessions(self) -> list[Session]: ...


class LeadershipDirectory(Protocol):
    """Which session leads, under which epoch."""

    async def lead(self, name: str, session: str, ttl_s: float) -> Leadership:
        """Take, keep or read the leadership; returns the current one. Another session takes over under a new epoch when
        its time is over, or at once if its session is known to be dead."""
        ...

    async def resign(self, lead: Leadership) -> None:
        """Give up the leadership early, if it is still held."""
        ...


class QueueDirectory(Protocol):
    """Settings of queues."""

    async def set_queue(self, settings: QueueSettings) -> None: ...
    async def queues(self) -> list[QueueSettings]: ...


class LimitDirectory(Protocol):
    """How many jobs of a concurrency key may be held at a time."""

    async def set_limit(self, key: str, most: int | None) -> None:
        """Limit the held rows of a concurrency key; None removes the limit. Frees blocked rows."""
        ...

    async def limits(self) -> dict[str, int]: ...


class ScheduleDirectory(Protocol):
    """Schedules and their ticks."""

    async def put_schedule(self, schedule: Schedule) -> None:
        """Store or replace a schedule. An existing one keeps `paused`, which an operator sets, and `last_tick_ms`
        unless the new one is later."""
        ...

    async def pause_schedule(self, name: str, *, paused: bool) -> bool:
        """Pause or resume; False if there is no such schedule."""
        ...

    async def schedules(self) -> list[Schedule]: ...
    async def drop_schedule(self, name: str) -> bool: ...

    async def tick(
        self, name: str, at_ms: int, jobs: Sequence[NewJob], *, lead: Leadership | None = None
    ) -> list[InsertResult] | None:
        """Insert the jobs of a tick and record the tick, once: None if it was recorded before."""
        ...


class Directory(SessionDirectory, LeadershipDirectory, QueueDirectory, LimitDirectory, ScheduleDirectory, Protocol):
    """All small tables of a store."""
