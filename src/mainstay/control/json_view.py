"""How a job, an event, a session and the counts of a store look as JSON.

This is the one declaration of each: the HTTP API answers with these structs and describes them in its OpenAPI schema,
the client decodes into them, and `--json` of the command line prints them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any, cast

import msgspec

from ..lifecycle import Event
from ..model import ErrorInfo, Job, Options, Progress, RetryPolicy, Session, is_private
from ..stores import JobStore, QueueStats
from .explain import is_alive
from .schedules import ScheduleView
from .unserved_jobs import unserved


class RetryPolicyView(RetryPolicy, frozen=True, kw_only=True, array_like=False):
    """How often and how soon a failed attempt is tried again."""


class JobOptionsView(Options, frozen=True, kw_only=True, array_like=False):
    """The options of the submit; they never change."""

    retry: RetryPolicyView = RetryPolicyView()


# Built positionally, because the row of a job is wide: keywords take twice as long.
class _JobHeader(msgspec.Struct, frozen=True):
    """A job or unit without its payload, result and checkpoint. Times are milliseconds since 1970, UTC."""

    id: str
    kind: str
    name: str
    queue: str
    parent: str | None
    unit: str | None
    group: str | None
    options: JobOptionsView
    key: str | None
    unique_key: str | None
    concurrency_key: str | None
    priority: int
    status: str
    reason: str | None
    version: int
    token: int
    session: str | None
    starts: int
    failures: int
    crashes: int
    releases: int
    losses: int
    created_ms: int
    changed_ms: int
    due_ms: int
    claimed_ms: int | None
    started_ms: int | None
    settled_ms: int | None
    expires_ms: int | None
    extra_ms: int
    error: ErrorInfo | None
    head: str
    trimmed_seq: int
    trimmed_digest: str
    lane: int
    rank: int
    progress: Progress | None
    progress_ms: int | None

    @property
    def is_settled(self) -> bool:
        """Whether the job stays as it is until a person or a policy moves it."""
        return self.settled_ms is not None

    def __repr__(self) -> str:
        """Short, because it ends up in logs: never the payload or the result."""
        return f"Job(id={self.id!r}, name={self.name!r}, status={self.status!r}, version={self.version})"


class JobView(_JobHeader, frozen=True):
    """A job or unit. Times are milliseconds since 1970, UTC. Payload, result and checkpoint are present if the request
    asks for them and the server shows them."""

    payload: Any = None
    result: Any = None
    checkpoint: Any = None


class EventView(msgspec.Struct, frozen=True):
    """One line of a job's audit trail."""

    job_id: str
    seq: int
    at_ms: int
    source: str | None
    to: str
    actor: str
    reason: str | None
    token: int
    flag: str
    details: dict[str, Any] | None
    digest: str


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's process."""

    id: str
    worker: str
    host: str
    pid: int
    started_ms: int
    lease_s: float
    dead: bool
    supervisor: int
    """pid of the worker that it is an engine of; 0: it is a worker of its own"""
    draining_ms: int | None
    """when it was asked to claim no more jobs and to end"""
    draining_by: str
    """the actor who asked"""
    queues: tuple[str, ...] | None = None
    """the queues that it claims from; null: unknown"""
    tasks: tuple[str, ...] | None = None
    """the tasks that its program has; null: unknown"""
    node: str = ""
    """the node whose placed work it runs; empty: it runs none"""
    labels: Mapping[str, str] = {}
    """the labels of that node"""
    at_work: bool
    silent_ms: int
    """since its last heartbeat"""
    age_ms: int


class QueueStatsView(QueueStats, frozen=True, kw_only=True):
    """Counts of one queue."""

    paused: bool


class UnservedView(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that no live worker takes."""

    queue: str
    task: str | None
    """null: no live worker listens on the queue; else no worker that listens has this task"""
    jobs: int
    text: str
    """the same as a sentence"""


class StatsView(msgspec.Struct, frozen=True, kw_only=True):
    """The counts, rates and sessions of a store."""

    at_ms: int
    queues: dict[str, QueueStatsView]
    rates: dict[str, float]
    """moves into each status per minute, over the last four to five minutes"""
    submitted: float
    """jobs submitted per minute, over the last four to five minutes"""
    live_sessions: int
    sessions: tuple[SessionView, ...]
    limits: dict[str, int]
    aside: int
    """rows set aside because they could not be read"""
    findings: tuple[str, ...]
    leader: str | None = None
    """the session that runs schedules, retention and checks"""
    unserved: tuple[UnservedView, ...] = ()
    """jobs that no live worker takes"""


class ExtensionValue:
    """An extension type of MessagePack within stored data. Its meaning is unknown, so its text names only its code and
    its size."""

    def __init__(self, code: int, data: memoryview) -> None:
        self.value = msgspec.msgpack.Ext(code, bytes(data))
        self._text = f"extension type {code}, {len(data)} bytes"

    def __str__(self) -> str:
        return self._text


_decode = msgspec.msgpack.Decoder(ext_hook=ExtensionValue).decode

#: the user's data, which may be secret; shown only on request
PRIVATE_FIELDS = ("payload", "result", "checkpoint")


def _values(view: type[msgspec.Struct], **converters: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    """A function that reads the fields of `view` from a stored record; `converters` read the fields that differ."""
    fields = view.__struct_fields__
    read = attrgetter(*fields)
    places = [(fields.index(name), convert) for name, convert in converters.items()]

    def values(record: Any) -> list[Any]:
        fields = list(read(record))
        for place, convert in places:
            fields[place] = convert(record)
        return fields

    return values


_header_values = _values(
    _JobHeader,
    options=lambda job: msgspec.convert(job.options, JobOptionsView, from_attributes=True),
    head=lambda job: job.head.hex(),
    trimmed_digest=lambda job: job.trimmed_digest.hex(),
)
_event_values = _values(
    EventView,
    details=lambda event: event.data or None,
    digest=lambda event: event.digest.hex(),
)


def job_view(job: Job, value: Callable[[Job, str], Any] | None = None) -> JobView:
    """A job. `value` reads its payload, result and checkpoint; without it the JSON does not have these keys."""
    header = _header_values(job)
    if value is None:
        return cast("JobView", _JobHeader(*header))
    return JobView(*header, *[value(job, name) for name in PRIVATE_FIELDS])


def event_view(event: Event) -> EventView:
    """An event of a job."""
    return EventView(*_event_values(event))


def stored_value(stored: bytes) -> Any:
    """A payload, result or checkpoint. Sealed data, and data that JSON cannot show, is given as it is stored."""
    try:
        return readable_value(stored)
    except ValueError:
        return {"undecodable": stored.hex()}


def value_of(job: Job, name: str) -> Any:
    """Its payload, result or checkpoint; see `stored_value`."""
    stored: bytes | None = getattr(job, name)
    return None if stored is None else stored_value(stored)


def readable_value(stored: bytes) -> Any:
    """A payload, result or checkpoint; raises `ValueError` if it cannot be read."""
    try:
        value = _decode(stored)
        msgspec.json.encode(value, enc_hook=str)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if isinstance(value, ExtensionValue):
        raise ValueError("it is sealed by a codec")
    return value


def session_view(session: Session, *, lease_ms: int, now_ms: int) -> SessionView:
    """A session at a lease time and a wall time. Its last heartbeat is left out: that is lease time, not a date."""
    offer = session.offer
    return SessionView(
        id=session.id,
        worker=session.worker,
        host=session.host,
        pid=session.pid,
        started_ms=session.started_ms,
        lease_s=session.lease_s,
        dead=session.dead,
        supervisor=session.supervisor,
        draining_ms=session.draining_ms,
        draining_by=session.draining_by,
        queues=None if offer is None else offer.queues,
        tasks=None if offer is None else tuple(sorted(offer.tasks)),
        node=session.node,
        labels=session.labels,
        at_work=is_alive(session, lease_ms),
        silent_ms=max(0, lease_ms - session.beat_ms),
        age_ms=max(0, now_ms - session.started_ms),
    )


async def read_stats(store: JobStore) -> StatsView:
    """The counts of a store, with its sessions and the settings of its queues."""
    stats, sessions = await store.stats(), await store.sessions()
    paused = {queue.name: queue.paused for queue in await store.queues()}
    lease_ms, now_ms = store.clock.lease_ms(), store.clock.now_ms()
    shown = tuple(session_view(each, lease_ms=lease_ms, now_ms=now_ms) for each in sessions)
    queues = {name: found for name, found in stats.queues.items() if not is_private(name)}
    for name in sorted(paused.keys() - queues.keys()):
        queues[name] = QueueStats(counts={})
    return StatsView(
        at_ms=stats.at_ms,
        queues={
            name: QueueStatsView(
                counts=found.counts, oldest_ready_ms=found.oldest_ready_ms, paused=paused.get(name, False)
            )
            for name, found in queues.items()
        },
        rates=stats.rates,
        submitted=stats.submitted,
        live_sessions=sum(each.at_work for each in shown),
        sessions=shown,
        limits=dict(await store.limits()),
        aside=stats.aside,
        findings=stats.findings,
        leader=stats.leader,
        unserved=tuple(
            UnservedView(queue=each.queue, task=each.task, jobs=each.jobs, text=each.text)
            for each in unserved(stats, sessions, lease_ms)
        ),
    )


def schedule_data(view: ScheduleView) -> dict[str, Any]:
    """A schedule."""
    return {
        "name": view.name,
        "when": view.when,
        "tz": view.tz,
        "task": view.task,
        "paused": view.paused,
        "registered": view.registered,
        "catch_up": view.catch_up,
        "overlap": view.overlap,
        "next_ticks_ms": [_ms(tick) for tick in view.next_ticks],
        "last_tick_ms": None if view.last_tick is None else _ms(view.last_tick),
        "counted_from_ms": None if view.counted_from is None else _ms(view.counted_from),
        "last_job": None if view.last_job is None else {"id": view.last_job, "status": view.last_status},
        "ticks_without_job": view.ticks_without_job,
        "problem": view.problem,
    }


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
