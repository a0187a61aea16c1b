"""What a session does while it holds jobs: claim, start, heartbeat, progress, more time, takeover."""

from __future__ import annotations

import logging
import math
import random
import re
import socket
from collections.abc import Collection, Mapping, Sequence

from ..clock import duration_text
from ..errors import Conflict, InvalidInput, JobNotFound, StaleClaim
from ..lifecycle import Move, table_of
from ..model import LEAD_QUEUE, Job, Offer, Progress, Session, Settings
from ..stores import ClaimReport, JobStore, Pulse, serves_nodes, shown_url
from .options import check_queue, check_text
from .progress import checked_checkpoint, checked_progress, checked_report
from .rules import extension
from .rules.extension import Extension
from .rules.guard import SweepGuard
from .writer import Decision, MoveRequest, Moves, Outcome, Writer, refused

log = logging.getLogger("mainstay.control")

#: far more than the notes of one attempt: the grants of the current claim are always among them
_LATEST = 200
#: a worker's name begins its session ids, and those are names of lock files; nodes and labels follow the same rule
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ROUNDS = 5


class Claims:
    """Sessions, and what they do with jobs between claim and end."""

    def __init__(
        self, store: JobStore, writer: Writer, guard: SweepGuard, settings: Settings, rng: random.Random
    ) -> None:
        self._store = store
        self._writer = writer
        self._guard = guard
        self._settings = settings
        self._rng = rng
        self._mine: set[str] = set()
        """sessions kept alive from here: while there is one, its heartbeats can fail"""

    async def open_session(
        self,
        *,
        worker: str = "",
        host: str | None = None,
        pid: int = 0,
        lease_s: float | None = None,
        supervisor: int = 0,
        offer: Offer | None = None,
        node: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Session:
        """Open a session (a worker process) under a new id, which begins with the worker's name (1 to 64 letters,
        digits, `.`, `_`, `-`): its traces name the worker even after the session is deleted. `host` is this machine by
        default; with the `pid` of this process, its death is noticed at once. `supervisor` is the pid of the worker
        that it is an engine of, if there is one. With an `offer` it gets only jobs of the tasks in it; without, every
        job of the queues it claims from. With a `node`, it runs the work that is placed on the node of that name, which
        has these `labels`; the rule for both is that for workers."""
        if worker != "":
            check_short_name(worker, field="worker")
        if node != "":
            check_short_name(node, field="node")
            if not serves_nodes(self._store.url):
                raise InvalidInput(
                    "node", f"{shown_url(self._store.url)} cannot place work on nodes; use SQLite or PostgreSQL"
                )
        checked_labels = check_labels(labels or {})
        if checked_labels and not node:
            raise InvalidInput("labels", "belong to a node; name it with node=...")
        session = Session(
            id=f"{worker or 'session'}.{self._rng.getrandbits(128):032x}",
            worker=worker,
            host=socket.gethostname() if host is None else host,
            pid=pid,
            started_ms=self._store.clock.now_ms(),
            beat_ms=self._store.clock.lease_ms(),
            lease_s=self._settings.lease_s if lease_s is None else self._checked_lease(lease_s),
            supervisor=supervisor,
            offer=offer,
            node=node,
            labels=checked_labels,
        )
        await self._store.open_session(session)
        self._mine.add(session.id)
        self._guard.heard(self._store.clock.lease_ms())
        return session

    def _checked_lease(self, lease_s: float) -> float:
        heartbeat_s = self._settings.heartbeat_s
        number = isinstance(lease_s, int | float) and not isinstance(lease_s, bool)
        if not number or not math.isfinite(lease_s) or lease_s <= heartbeat_s:
            beat = duration_text(heartbeat_s)
            raise InvalidInput("lease_s", f"{lease_s!r} is not a number of seconds above the heartbeat ({beat})")
        return lease_s

    async def close_session(self, session: str) -> None:
        """Close a session. Release its jobs first: a sweep takes back those it still holds."""
        check_session(session)
        await self._store.close_session(session)
        self._mine.discard(session)
        if not self._mine:
            self._guard.forget()

    async def claim(self, queues: Sequence[str], session: str, n: int) -> list[Job]:
        """Claim up to n jobs of these queues for a session; raises `SessionLost` if it was declared dead. Jobs over
        their queue deadline are not claimed: a sweep ends them. Nothing is awaited once they are claimed, so that
        nothing can come between a claim and its answer."""
        if isinstance(queues, str | bytes) or not isinstance(queues, Collection) or not queues:
            raise InvalidInput("queues", f"{queues!r} is not a list of queue names")
        for queue in queues:
            if queue != LEAD_QUEUE:
                check_queue(queue, field="queues")
        check_session(session)
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise InvalidInput("n", f"{n!r} is not a whole number above zero; claim when there is room for a job")
        return await self._store.claim(queues, session, n)

    async def start(self, jobs: Sequence[Job]) -> list[bool]:
        """Store that the work begins now; False if the claim was lost: do not begin."""
        return await self._store.report([self.started(job) for job in jobs])

    async def confirm(self, rows: Sequence[Job]) -> list[Outcome]:
        """Acknowledge rows that were assigned to their session (`dispatched`), as their holder: it has them, and will
        run them. `already_applied`: the row was confirmed before under this token. `stale`: it was taken back."""
        requests = []
        for row in rows:
            if row.session is None:
                raise InvalidInput(
                    "rows", f"{row.id} is {row.status} and has no holder; pass the row as it was assigned"
                )
            requests.append(MoveRequest(row, _confirmation(row), row.session, row.session))
        return await self._writer.write(requests)

    def started(self, job: Job) -> ClaimReport:
        """A report that the work began, to send with the next heartbeat."""
        return _report(job, started_ms=self._store.clock.now_ms())

    def progress(
        self,
        job: Job,
        done: float,
        total: float | None = None,
        message: str | None = None,
        *,
        checkpoint: bytes | None = None,
    ) -> ClaimReport:
        """A report of progress, to send with the next heartbeat. Only progress resets the stall timeout."""
        if checkpoint is not None:
            checkpoint = checked_checkpoint(checkpoint, limit=self._settings.payload_limit)
        progress = checked_progress(Progress(done=done, total=total, message=message))
        return _report(job, progress=progress, checkpoint=checkpoint)

    async def report(self, reports: Sequence[ClaimReport]) -> list[bool]:
        """Send reports now. If one cannot be stored, the others are, and then its error is raised."""
        good, refused = self._checked(reports)
        answers = await self._store.report(good)
        if refused:
            raise refused[0]
        return answers

    async def beat(self, sessions: Sequence[str], reports: Sequence[ClaimReport] = ()) -> list[Pulse]:
        """Send heartbeats for sessions, with their reports. A report that cannot be stored is logged: it must not cost
        a session its life. A process that sends heartbeats, even for no session, is careful when it sweeps: silence of
        others counts only while its own heartbeats are stored."""
        if isinstance(sessions, str | bytes) or not isinstance(sessions, Collection):
            raise InvalidInput("sessions", f"{sessions!r} is not a list of session ids; write [session.id]")
        for index, session in enumerate(sessions):
            check_session(session, field=f"sessions[{index}]")
        good, refused = self._checked(reports)
        for error in refused:
            log.warning("report refused %s", error)
        self._guard.trying(self._store.clock.lease_ms())
        pulses = await self._store.beat(sessions, good)
        self._guard.heard(self._store.clock.lease_ms())
        for pulse in pulses:
            if pulse.known:
                self._mine.add(pulse.session)
            else:
                self._mine.discard(pulse.session)
                log.warning("session declared dead session=%s", pulse.session)
        return pulses

    def _checked(self, reports: Sequence[ClaimReport]) -> tuple[list[ClaimReport], list[InvalidInput]]:
        good: list[ClaimReport] = []
        refused: list[InvalidInput] = []
        for report in reports:
            try:
                good.append(checked_report(report, limit=self._settings.payload_limit))
            except InvalidInput as error:
                refused.append(error)
        return good, refused

    async def extend(self, job: Job, *, progress: Progress | None = None) -> Extension:
        """Request more run time: granted if progress rose since the last grant, five times at most. `progress`, if
        given, is reported first."""
        if progress is not None:
            [known] = await self._store.report([_report(job, progress=checked_progress(progress))])
            if not known:
                raise StaleClaim(f"job {job.id}: the claim was lost; stop the work")
        for _ in range(_ROUNDS):
            row = (await self._store.get([job.id]))[0]
            if row is None:
                raise JobNotFound(job.id)
            if (row.session, row.token) != (job.session, job.token):
                raise StaleClaim(f"job {job.id}: the claim was lost; stop the work")
            events = await self._store.events(job.id, after=max(0, row.version - _LATEST))
            grant = extension.grant(row, events)
            if not grant.granted or await self._write_grant(row, grant):
                return grant
        return Extension(granted_s=0.0, grants=0, why="other writes kept moving the job; ask again")

    async def _write_grant(self, row: Job, grant: Extension) -> bool:
        """Write a grant if the row has not changed since it was decided."""
        extra_ms = row.extra_ms + round(grant.granted_s * 1000)
        reason = f"extension {grant.grants} of {extension.MOST_GRANTS}: {grant.granted_s:g}s more; {grant.why}"
        note = Move(
            to=row.status,
            reason=reason,
            details=extension.mark(row, grant),
            fields={"extra_ms": extra_ms},
            flag="note",
        )

        def decide(now: Job, _: int) -> Moves:
            return (note,) if now.version == row.version else ()

        outcome = (await self._writer.write([MoveRequest(row, decide, row.session or "", row.session)]))[0]
        if outcome.outcome == "stale":
            raise refused(outcome)
        return outcome.outcome == "applied"

    async def take_over(self, job: Job, session: str) -> Job:
        """Become the owner of a phase whose owner was lost, under a new token."""
        check_session(session)

        def decide(row: Job, now_ms: int) -> Moves:
            state = table_of(row.parent).get(row.status)
            if row.session is not None or state is None or not state.holds:
                raise Conflict(f"job {row.id} is {row.status} and has an owner, or needs none; it cannot be taken over")
            taken = {"token": row.token + 1, "session": session, "claimed_ms": now_ms, "started_ms": None}
            return (Move(to=row.status, reason=f"taken over by {session}", fields=taken, flag="note"),)

        return await self._writer.one(job.id, decide, actor=session)


def check_short_name(name: str, *, field: str) -> str:
    """Refuse what cannot be the name of a worker or a node, or part of a label.

    >>> check_short_name("rack 7", field="node")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: node: 'rack 7' is not 1 to 64 of letters, digits, '.', '_' and '-'
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(field, f"{name!r} is not 1 to 64 of letters, digits, '.', '_' and '-'")
    return name


def check_labels(labels: Mapping[str, str], *, field: str = "labels") -> dict[str, str]:
    """Refuse what cannot be the labels of a node.

    >>> check_labels({"zone": "a"}), check_labels({"zone": ""})
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: labels.zone: '' is not 1 to 64 of letters, digits, '.', '_' and '-'
    """
    if not isinstance(labels, Mapping):
        raise InvalidInput(field, f"{labels!r} is not a mapping of keys to values")
    for key, value in labels.items():
        check_short_name(key, field=field)
        check_short_name(value, field=f"{field}.{key}")
    return dict(labels)


def _confirmation(assigned: Job) -> Decision:
    def decide(row: Job, _: int) -> Moves:
        held = (row.session, row.token) == (assigned.session, assigned.token)
        if held and row.status != "dispatched":
            return ()
        # if it is not held any more, the store refuses this as stale, and records it
        return (Move(to="running", reason="confirmed by its node", fields={"expires_ms": None}),)

    return decide


def check_session(session: str, *, field: str = "session") -> str:
    """Refuse what is not a session id; most often it is the session itself."""
    if not isinstance(session, str):
        raise InvalidInput(field, f"{session!r} is not a session id; pass its id, like session.id")
    return check_text(session, field=field)


def _report(
    job: Job, *, started_ms: int | None = None, progress: Progress | None = None, checkpoint: bytes | None = None
) -> ClaimReport:
    if job.session is None:
        raise InvalidInput("job", f"{job.id} is {job.status} and has no owner; pass the row as it was claimed")
    return ClaimReport(
        job_id=job.id,
        session=job.session,
        token=job.token,
        started_ms=started_ms,
        progress=progress,
        checkpoint=checkpoint,
    )


__all__ = ["Claims", "Extension", "check_labels", "check_session", "check_short_name"]
