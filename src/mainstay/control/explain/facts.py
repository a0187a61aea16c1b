"""The facts around a job that its explanation needs, read with bounded queries."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...kinds import is_kind, kind_named, part
from ...lifecycle import JOB, UNIT
from ...model import Job, QueueSettings, Session
from ...stores import JobStore, Query, RefusedWrite
from ..member_sessions import MemberSessions
from .cluster_facts import ClusterFacts

#: held jobs that are read, over all sessions
_MOST_HELD = 2000
#: pending jobs that are read to count those that go first, and the pages they may come in
_MOST_AHEAD = 5000
_MOST_PAGES = 20
_PAGE = 500

_CLAIMABLE = JOB.named("claimable")
_OPEN_UNITS = tuple(name for name, state in UNIT.states.items() if not state.settled)


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """A job that another waits for."""

    id: str
    name: str = ""
    status: str | None = None
    """None: it was deleted"""
    settled: bool = True


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Something to do now."""

    why: str
    command: str
    """for a shell; the caller adds --store or --app"""


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why a job does not run, or does not go on."""

    text: str
    advice: tuple[Advice, ...] = ()
    stops: bool = True
    """False: it passes with time"""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts around a job at one moment."""

    now_ms: int
    lease_ms: int
    sessions: tuple[Session, ...] = ()
    queue: QueueSettings | None = None
    """what an operator set for its queue"""
    limit: int | None = None
    """most jobs of its concurrency key at a time"""
    held: tuple[Job, ...] = ()
    """the jobs that sessions hold now"""
    ahead: int = 0
    """ready jobs of its queue that go before it"""
    ahead_counted: bool = True
    """False: there may be more than `ahead`"""
    awaited: tuple[Awaited, ...] = ()
    open_units: int = 0
    refusals: tuple[RefusedWrite, ...] = ()
    own: tuple[Obstacle, ...] | None = None
    """the obstacles that the kind of the job knows; None: workers claim it, and the general ones apply"""
    cluster: ClusterFacts | None = None
    """what managers know of nodes; None: it was not asked for, or the store has no cluster"""


def is_alive(session: Session, lease_ms: int) -> bool:
    """Whether a session counts as at work: not declared dead, and standing or with a heartbeat within its lease."""
    return not session.dead and (session.standing or lease_ms - session.beat_ms <= session.lease_s * 1000)


def as_heard(store: JobStore, cluster: ClusterFacts | None) -> JobStore:
    """A store whose sessions of nodes are those that managers hear, as placement sees them."""
    return store if cluster is None else MemberSessions(store, cluster.silence_s, away_s=cluster.away_s)


async def gather(store: JobStore, job_id: str, job: Job | None, cluster: ClusterFacts | None = None) -> Facts:
    """Read the facts around a job. The cost does not grow with the store."""
    store = as_heard(store, cluster)
    sessions = tuple(await store.sessions())
    facts = Facts(
        now_ms=store.clock.now_ms(),
        lease_ms=store.clock.lease_ms(),
        sessions=sessions,
        refusals=tuple(await store.refusals(job_id)),
        open_units=0 if job is None or job.settled_ms is not None else await _open_units(store, job),
        own=None if job is None or job.settled_ms is not None else await _own_obstacles(store, job),
        cluster=cluster,
    )
    if job is None or job.settled_ms is not None or job.session is not None:
        return facts
    # without a live worker it does not matter which job would go first
    at_work = any(is_alive(session, facts.lease_ms) for session in sessions)
    ahead, counted = await _ahead(store, job) if at_work else (0, True)
    limits = await store.limits() if job.concurrency_key is not None else {}
    return msgspec.structs.replace(
        facts,
        queue=next((queue for queue in await store.queues() if queue.name == job.queue), None),
        limit=limits.get(job.concurrency_key or ""),
        held=await _held(store, sessions),
        ahead=ahead,
        ahead_counted=counted,
        awaited=await _awaited(store, job) if job.awaits else (),
    )


async def _own_obstacles(store: JobStore, job: Job) -> tuple[Obstacle, ...] | None:
    kind = kind_named(job.kind) if is_kind(job.kind) else None
    found = None if kind is None or not kind.obstacles else await part(kind.obstacles)(store, job)
    return None if found is None else tuple(found)


async def _held(store: JobStore, sessions: Sequence[Session]) -> tuple[Job, ...]:
    held: list[Job] = []
    for session in sessions:
        left = _MOST_HELD - len(held)
        if left <= 0:
            break
        held += (await store.find(Query(session=session.id), limit=min(left, _PAGE))).jobs
    return tuple(held)


async def _ahead(store: JobStore, job: Job) -> tuple[int, bool]:
    """How many ready jobs of its queue go first. These are mostly older, so the oldest are read first."""
    if job.is_unit or job.status not in _CLAIMABLE:
        return 0, True
    query = Query(queue=job.queue, status=_CLAIMABLE, oldest_first=True)
    mine = (job.rank, job.due_ms, job.id)
    ahead = read = 0
    cursor = None
    for _ in range(_MOST_PAGES):
        page = await store.find(query, cursor=cursor, limit=_PAGE)
        read += len(page.jobs)
        ahead += sum(other.id != job.id and (other.rank, other.due_ms, other.id) < mine for other in page.jobs)
        cursor = page.cursor
        if cursor is None:
            return ahead, True
        if read >= _MOST_AHEAD:
            break
    return ahead, False


async def _awaited(store: JobStore, job: Job) -> tuple[Awaited, ...]:
    ids = await store.awaited(job.id)
    return tuple(
        Awaited(id=job_id)
        if row is None
        else Awaited(id=job_id, name=row.name, status=row.status, settled=row.settled_ms is not None)
        for job_id, row in zip(ids, await store.get(ids), strict=True)
    )


async def _open_units(store: JobStore, job: Job) -> int:
    if job.is_unit:
        return 0
    counts = await store.unit_counts(job.id)
    return sum(counts.get(status, 0) for status in _OPEN_UNITS)
