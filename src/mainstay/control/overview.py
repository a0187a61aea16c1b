"""An overview of a store: its queues, its sessions, and the limits of concurrency keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from ..errors import InvalidInput
from ..model import Job, Session, is_private
from ..stores import JobStore, Query
from .actions import WAITING_STATES
from .json_view import SessionView, session_view

#: held jobs that are read per session
COUNTED = 1000


class QueueOverview(msgspec.Struct, frozen=True, kw_only=True):
    """One queue of the list."""

    name: str
    paused: bool
    reason: str | None
    set_by: str
    """the actor who paused or resumed it last; empty: unknown"""
    set_ms: int | None
    """when that was"""
    counts: dict[str, int]
    oldest_ready_ms: int | None
    sessions_at_work: int
    """live sessions that hold a job of it now"""

    @property
    def waiting(self) -> int:
        return sum(self.counts.get(status, 0) for status in WAITING_STATES)


class QueuesOverview(msgspec.Struct, frozen=True, kw_only=True):
    """All queues, with the rates of the store."""

    at_ms: int
    queues: list[QueueOverview]
    rates: dict[str, float]
    live_sessions: int


class SessionOverview(msgspec.Struct, frozen=True, kw_only=True):
    """One session of the list."""

    session: Session
    view: SessionView
    """the session as JSON, at the time of reading"""
    held: list[Job]
    """the newest, up to `COUNTED`"""
    leads: bool = False
    """it runs schedules, retention and checks"""

    @property
    def at_work(self) -> bool:
        return self.view.at_work

    @property
    def holds(self) -> int:
        return len(self.held)


class LimitOverview(msgspec.Struct, frozen=True, kw_only=True):
    """One concurrency key of the list."""

    key: str
    limit: int
    held: int
    counted: bool = True
    """False: `held` is a lower bound"""


async def queues(store: JobStore) -> QueuesOverview:
    """Queues that have jobs or settings, by name; without private queues."""
    stats = await store.stats()
    settings = {queue.name: queue for queue in await store.queues()}
    alive = [seen for seen in await sessions(store) if seen.at_work]
    at_work = Counter(name for seen in alive for name in {job.queue for job in seen.held})
    listed = []
    for name in sorted(stats.queues.keys() | settings.keys()):
        if is_private(name):
            continue
        counted, setting = stats.queues.get(name), settings.get(name)
        listed.append(
            QueueOverview(
                name=name,
                paused=setting is not None and setting.paused,
                reason=None if setting is None else setting.reason,
                set_by="" if setting is None else setting.set_by,
                set_ms=None if setting is None else setting.set_ms,
                counts={} if counted is None else counted.counts,
                oldest_ready_ms=None if counted is None else counted.oldest_ready_ms,
                sessions_at_work=at_work[name],
            )
        )
    return QueuesOverview(at_ms=stats.at_ms, queues=listed, rates=stats.rates, live_sessions=len(alive))


async def known_queues(store: JobStore) -> set[str]:
    """Queues that have jobs or settings."""
    return (await store.stats()).queues.keys() | {queue.name for queue in await store.queues()}


async def check_known(store: JobStore, names: Iterable[str]) -> None:
    """Refuse an unknown queue: it is probably misspelt."""
    known = await known_queues(store)
    for name in names:
        if name not in known:
            raise InvalidInput("queue", f"unknown queue {name!r}; known queues: {', '.join(sorted(known)) or 'none'}")


async def sessions(store: JobStore) -> list[SessionOverview]:
    """The sessions, live ones first, with the jobs they hold."""
    lease_ms, now_ms = store.clock.lease_ms(), store.clock.now_ms()
    listed = []
    leader = (await store.stats()).leader
    for session in await store.sessions():
        page = await store.find(Query(session=session.id), limit=COUNTED)
        listed.append(
            SessionOverview(
                session=session,
                view=session_view(session, lease_ms=lease_ms, now_ms=now_ms),
                held=page.jobs,
                leads=session.id == leader,
            )
        )
    return sorted(listed, key=lambda seen: (not seen.at_work, seen.session.worker, seen.session.started_ms))


async def limits(store: JobStore) -> list[LimitOverview]:
    """The limits with their held slots, counted from the sessions: the cost does not grow with the waiting jobs."""
    most = await store.limits()
    live = await sessions(store) if most else []
    held = Counter(job.concurrency_key for each in live for job in each.held)
    counted = all(each.holds < COUNTED for each in live)
    return [LimitOverview(key=key, limit=n, held=held[key], counted=counted) for key, n in sorted(most.items())]
