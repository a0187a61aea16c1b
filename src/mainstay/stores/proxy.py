"""A store in front of another store: the base of every wrapper.

A wrapper overrides single methods, or replaces all coroutine methods at once with `_replace`. Everything else goes to
the store behind it, also attributes that an adapter has beyond the port.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ..clock import Clock
from ..lifecycle import Chain, Event
from ..model import Job, Leadership, QueueSettings, Schedule, Session
from .durability import Durability
from .port import (
    CALLS,
    AnyChange,
    Audited,
    ChangeResult,
    ClaimReport,
    Deletion,
    InsertResult,
    JobStore,
    NewJob,
    Observer,
    Overdue,
    Page,
    Pulse,
    Query,
    RefusedWrite,
    Stats,
    Trimmed,
    TrimPolicy,
    Violation,
    Wake,
)

StoreMethod = Callable[..., Awaitable[Any]]


class StoreProxy:
    """Passes every call on. It is a `JobStore`: the type checker compares each method with the port."""

    url: str
    clock: Clock
    chain: Chain
    durability: str

    def __init__(self, store: JobStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _replace(self, method_of: Callable[[str], StoreMethod], names: Sequence[str] = CALLS) -> None:
        """Replace coroutine methods by functions made from their names."""
        for name in names:
            setattr(self, name, method_of(name))

    @property
    def observer(self) -> Observer | None:
        return self._store.observer

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        self._store.observer = observer

    async def close(self) -> None:
        await self._store.close()

    def durability_of(self, level: Durability) -> str:
        return self._store.durability_of(level)

    def wake(self, topics: Sequence[str]) -> Wake:
        return self._store.wake(topics)

    async def insert(
        self, jobs: Sequence[NewJob], *, durability: Durability | None = None, lead: Leadership | None = None
    ) -> list[InsertResult]:
        return await self._store.insert(jobs, durability=durability, lead=lead)

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        return await self._store.get(ids)

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 100) -> Page:
        return await self._store.find(query, cursor=cursor, limit=limit)

    async def claim(self, queues: Sequence[str], session: str, n: int, *, mark: str | None = None) -> list[Job]:
        return await self._store.claim(queues, session, n, mark=mark)

    async def apply(
        self, changes: Sequence[AnyChange], *, lead: Leadership | None = None, together: bool = False
    ) -> list[ChangeResult]:
        return await self._store.apply(changes, lead=lead, together=together)

    async def report(self, reports: Sequence[ClaimReport]) -> list[bool]:
        return await self._store.report(reports)

    async def due(self, queues: Sequence[str]) -> int | None:
        return await self._store.due(queues)

    async def overdue(self, limit: int = 100) -> list[Overdue]:
        return await self._store.overdue(limit)

    async def events(self, job_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        return await self._store.events(job_id, after=after, limit=limit)

    async def refusals(self, job_id: str) -> list[RefusedWrite]:
        return await self._store.refusals(job_id)

    async def awaited(self, job_id: str) -> list[str]:
        return await self._store.awaited(job_id)

    async def unit_counts(self, parent: str) -> dict[str, int]:
        return await self._store.unit_counts(parent)

    async def stats(self) -> Stats:
        return await self._store.stats()

    async def trim(self, policy: TrimPolicy, *, lead: Leadership | None = None) -> Trimmed:
        return await self._store.trim(policy, lead=lead)

    async def delete(
        self, ids: Sequence[str], *, actor: str, reason: str, versions: Mapping[str, int] | None = None
    ) -> list[Deletion]:
        return await self._store.delete(ids, actor=actor, reason=reason, versions=versions)

    async def open_session(self, session: Session) -> None:
        await self._store.open_session(session)

    async def beat(self, sessions: Sequence[str], reports: Sequence[ClaimReport] = ()) -> list[Pulse]:
        return await self._store.beat(sessions, reports)

    async def drain(self, sessions: Sequence[str], *, by: str) -> list[bool]:
        return await self._store.drain(sessions, by=by)

    async def close_session(self, session: str, *, lead: Leadership | None = None) -> None:
        await self._store.close_session(session, lead=lead)

    async def sessions(self) -> list[Session]:
        return await self._store.sessions()

    async def lead(self, name: str, session: str, ttl_s: float) -> Leadership:
        return await self._store.lead(name, session, ttl_s)

    async def resign(self, lead: Leadership) -> None:
        await self._store.resign(lead)

    async def set_queue(self, settings: QueueSettings) -> None:
        await self._store.set_queue(settings)

    async def queues(self) -> list[QueueSettings]:
        return await self._store.queues()

    async def set_limit(self, key: str, most: int | None) -> None:
        await self._store.set_limit(key, most)

    async def limits(self) -> dict[str, int]:
        return await self._store.limits()

    async def put_schedule(self, schedule: Schedule) -> None:
        await self._store.put_schedule(schedule)

    async def pause_schedule(self, name: str, *, paused: bool) -> bool:
        return await self._store.pause_schedule(name, paused=paused)

    async def schedules(self) -> list[Schedule]:
        return await self._store.schedules()

    async def drop_schedule(self, name: str) -> bool:
        return await self._store.drop_schedule(name)

    async def tick(
        self, name: str, at_ms: int, jobs: Sequence[NewJob], *, lead: Leadership | None = None
    ) -> list[InsertResult] | None:
        return await self._store.tick(name, at_ms, jobs, lead=lead)

    async def audit(self, *, after: str = "", limit: int = 500) -> list[Audited]:
        return await self._store.audit(after=after, limit=limit)

    async def check(self, *, repair: bool = False, quick: bool = False) -> list[Violation]:
        return await self._store.check(repair=repair, quick=quick)

    async def mend(self, found: Audited, after: Job, events: Sequence[Event]) -> bool:
        return await self._store.mend(found, after, events)
