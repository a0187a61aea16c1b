"""MemoryStore: the operations of the port over `Rows`.

One lock around each operation makes it atomic between threads. An operation refuses whatever it refuses before its
first write, so nothing has to be undone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock

import msgspec

from ...clock import Clock, SystemClock
from ...errors import Conflict, InvalidInput, InvalidTransition, SessionLost, StoreClosed
from ...lifecycle import Chain, Event, claim, is_stopping, promote, tombstone
from ...model import PLACE_MS, Job, Lane, Leadership, QueueSettings, Schedule, Session, driver_ids, route_of
from ..bounds import LEADER, SUBMITTED
from ..change_check import (
    SINCE,
    admit_claim,
    affected,
    deletion,
    is_settled,
    judge,
    landed,
    new_holder,
    parent_move,
    refusal,
    reported,
    retakes,
    taken_again,
)
from ..durability import Durability, refused
from ..port import (
    MARKS_KEPT,
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
    QueueStats,
    RefusedWrite,
    SealedChange,
    Stats,
    Trimmed,
    TrimPolicy,
    Violation,
)
from ..records import DRAINING
from ..routes import EVERYBODY, Offers
from ..sealed_changes import FINE, apply_sealed, withheld
from ..session_names import admit_session
from ..violations import stray_refusal
from .check import check
from .insertion import InsertPlan
from .queries import page
from .retention import trim_events, trim_jobs
from .tables import Tables
from .wake import MemoryWake, WakeHub


class MemoryStore:
    """Jobs in memory: lost with the process, otherwise like any store.

    Safe to use from several tasks and threads. Tests pass a `VirtualClock`.

    >>> import asyncio
    >>> store = MemoryStore()
    >>> asyncio.run(store.get(["018bcfe5-6800-7000-8000-000000000001"]))
    [None]
    """

    url = "memory:"
    durability = "none: the jobs are gone with the process"

    def __init__(
        self,
        clock: Clock | None = None,
        chain: Chain | None = None,
        *,
        tables: Tables | None = None,
        notify: Callable[[Mapping[str, int]], None] | None = None,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.chain = chain or Chain()
        self.observer: Observer | None = None
        self._lock = RLock()
        self._closed = False
        self._hub = WakeHub()
        self._notify = notify or self._hub.notify
        tables = tables or Tables()
        self._rows = tables.rows
        self._keys = tables.keys
        self._refusals = tables.refusals
        self._sessions = tables.sessions
        self._marks = tables.marks
        self._leaders = tables.leaders
        self._queues = tables.queues
        self._limits = tables.limits
        self._schedules = tables.schedules
        self._offers = Offers()

    async def close(self) -> None:
        with self._lock:
            self._closed = True

    @contextmanager
    def _reading(self) -> Iterator[int]:
        """One atomic step; yields its time."""
        with self._lock:
            if self._closed:
                raise StoreClosed("this memory store was closed; open a new one")
            yield self.clock.now_ms()

    @contextmanager
    def _writing(self) -> Iterator[int]:
        """An atomic step. At its end, it moves on waiting jobs, passes on free slots and wakes subscribers."""
        with self._reading() as now_ms:
            yield now_ms
            rows = self._rows
            if rows.waits.over:
                rows.follow_waits(self.chain, now_ms)
            rows.promote_blocked(self._limits, now_ms)
            if rows.written:
                written, rows.written = rows.written, []
                if self.observer is not None:
                    self.observer(written)
            if rows.woken:
                woken, rows.woken = rows.woken, type(rows.woken)()
                self._notify(woken)

    # jobs -------------------------------------------------------------------------------------------

    def durability_of(self, level: Durability) -> str:
        raise refused(level, "this store keeps jobs in memory, and loses them with the process")

    async def insert(
        self, jobs: Sequence[NewJob], *, durability: Durability | None = None, lead: Leadership | None = None
    ) -> list[InsertResult]:
        if durability is not None:
            self.durability_of(durability)
        with self._writing() as now_ms:
            self._leaders.fence(lead, self.clock.lease_ms())
            return self._insert(jobs, now_ms)

    def _insert(self, jobs: Sequence[NewJob], now_ms: int) -> list[InsertResult]:
        plan = InsertPlan(self._rows, self._keys, now_ms)
        results = plan.plan(jobs)
        plan.write()
        return results

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        with self._reading():
            return [self._rows.jobs.get(job_id) for job_id in ids]

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 100) -> Page:
        with self._reading():
            rows = self._rows
            few = query.kind not in (None, "task") and query.parent is None and query.session is None
            ids = sorted(rows.kinds.get(query.kind or "", ())) if few else rows.ids
            return page(rows.jobs, ids, query, cursor, limit)

    async def claim(self, queues: Sequence[str], session: str, n: int, *, mark: str | None = None) -> list[Job]:
        admit_claim(queues)
        with self._writing() as now_ms:
            holder = self._sessions.get(session)
            if holder is None or holder.dead:
                raise SessionLost(session)
            if mark is not None and (claimed := self._marks.get(session, {}).get(mark)) is not None:
                return self._still_held(session, claimed)
            taken = [] if holder.is_draining else self._claim(queues, holder, n, now_ms)
            if mark is not None:
                marks = {**self._marks.get(session, {}), mark: tuple((job.id, job.token) for job in taken)}
                self._marks[session] = dict(list(marks.items())[-MARKS_KEPT:])
            return taken

    def _claim(self, queues: Sequence[str], holder: Session, n: int, now_ms: int) -> list[Job]:
        tasks = None if holder.offer is None else holder.offer.tasks
        for queue in queues:
            self._promote_due(queue, now_ms)
            self._bring_back(queue, tasks, n, now_ms)
        may_route = tasks is not None and all(each.offer is not None for each in self._living())
        taken: list[Job] = []
        late: list[Job] = []
        while len(taken) < n and (best := self._best(queues)) is not None:
            if best.expires_ms is not None and best.expires_ms <= now_ms:
                self._rows.ready[best.queue].drop(best.id)
                late.append(best)
            elif may_route and tasks is not None and route_of(best.kind, best.name) not in tasks:
                self._route(best, now_ms)
            elif (job := self._take(best, holder.id, now_ms)) is not None:
                taken.append(job)
        for row in late:
            # skipped by this claim only: the sweeper ends it
            self._rows.ready[row.queue].put(row.id, row.rank)
        for job in taken:
            # rows that became ready in this step and were claimed by it need no other worker
            topic = f"queue:{job.queue}"
            if self._rows.woken[topic] > 0:
                self._rows.woken[topic] -= 1
        return taken

    def _still_held(self, session: str, claimed: Sequence[tuple[str, int]]) -> list[Job]:
        """The rows of an earlier claim that the session still holds under the same token."""
        rows = [(self._rows.jobs.get(job_id), token) for job_id, token in claimed]
        return [row for row, token in rows if row is not None and (row.session, row.token) == (session, token)]

    def _living(self) -> list[Session]:
        return [session for session in self._sessions.values() if not session.dead]

    def _bring_back(self, queue: str, tasks: Mapping[str, object] | None, n: int, now_ms: int) -> None:
        """Make routed rows ready that the session can run, up to n."""
        if queue not in self._rows.routed or self._is_paused(queue):
            return
        for route, line in list(self._rows.routed[queue].items()):
            if tasks is not None and route not in tasks:
                continue
            for _ in range(n):
                if (best := line.first()) is None:
                    break
                self._rows.write(msgspec.structs.replace(self._rows.jobs[best[1]], lane=Lane.READY), (), now_ms)

    def _route(self, row: Job, now_ms: int) -> None:
        """Move a row to the lane for sessions that have its task, and wake all: it is not known which of them have
        it."""
        self._rows.write(msgspec.structs.replace(row, lane=Lane.ROUTED), (), now_ms)
        self._rows.woken[f"queue:{row.queue}"] += EVERYBODY
        self._offers.warn(row)

    def _promote_due(self, queue: str, now_ms: int) -> None:
        rows = self._rows
        line = rows.due[queue]
        while (first := line.first()) is not None and first[0] <= now_ms:
            row = rows.jobs[first[1]]
            try:
                moved = promote(row, now_ms=now_ms, chain=self.chain)
            except InvalidTransition:
                rows.write(msgspec.structs.replace(row, lane=Lane.ASIDE), (), now_ms)
                continue
            # a unit waits in its claimable state: it only changes lanes
            rows.write(msgspec.structs.replace(moved.job, lane=Lane.READY), moved.events, now_ms)

    def _best(self, queues: Sequence[str]) -> Job | None:
        """The first row over all the queues."""
        heads = []
        for queue in queues:
            if self._is_paused(queue):
                continue
            if (head := self._rows.ready[queue].first()) is not None:
                heads.append(head)
        return self._rows.jobs[min(heads)[1]] if heads else None

    def _is_paused(self, queue: str) -> bool:
        settings = self._queues.get(queue)
        return settings is not None and settings.paused

    def _take(self, row: Job, session: str, now_ms: int) -> Job | None:
        rows = self._rows
        if row.concurrency_key is not None and rows.free_slots(row.concurrency_key, self._limits) == 0:
            rows.write(msgspec.structs.replace(row, lane=Lane.BLOCKED), (), now_ms)
            return None
        try:
            moved = claim(row, session=session, now_ms=now_ms, chain=self.chain)
        except InvalidTransition:
            rows.write(msgspec.structs.replace(row, lane=Lane.ASIDE), (), now_ms)
            return None
        rows.write(moved.job, moved.events, now_ms)
        return moved.job

    async def apply(
        self, changes: Sequence[AnyChange], *, lead: Leadership | None = None, together: bool = False
    ) -> list[ChangeResult]:
        async def write(sealed: Sequence[SealedChange]) -> list[ChangeResult]:
            with self._writing() as now_ms:
                self._leaders.fence(lead, self.clock.lease_ms())
                if together:
                    return self._apply_together(sealed, now_ms)
                return [result for change in sealed for result in self._apply([change], now_ms)]

        return await apply_sealed(changes, self.chain, write, together=together)

    def _apply_together(self, changes: Sequence[SealedChange], now_ms: int) -> list[ChangeResult]:
        results = [self._judge(change, now_ms) for change in changes]
        fitting = [change for change, result in zip(changes, results, strict=True) if result.outcome == "applied"]
        clashing = retakes(fitting)
        results = [
            ChangeResult("conflict", result.job) if change.after.id in clashing else result
            for change, result in zip(changes, results, strict=True)
        ]
        if any(result.outcome not in FINE for result in results):
            return withheld(results)
        written = iter(self._apply(fitting, now_ms))
        return [next(written) if result.outcome == "applied" else result for result in results]

    def _apply(self, changes: Sequence[SealedChange], now_ms: int) -> list[ChangeResult]:
        """Write all of the changes, or none of them if one is refused."""
        rows = self._rows
        results = [self._judge(change, now_ms) for change in changes]
        if any(result.outcome != "applied" for result in results):
            return withheld(results)
        afters = [landed(rows.jobs[change.before.id], change) for change in changes]
        plan = InsertPlan(
            rows,
            self._keys,
            now_ms,
            settling=[after.id for after in afters if is_settled(after)],
            taking={key: change.after.id for change in changes if (key := taken_again(change)) is not None},
        )
        for place, change in enumerate(changes):
            try:
                plan.plan(change.spawn)
            except (Conflict, InvalidInput):
                results[place] = ChangeResult("conflict", results[place].job)
                return withheld(results)
        for change, after in zip(changes, afters, strict=True):
            rows.write(after, change.events, now_ms)
        plan.write()
        _, last_units = affected(changes)
        last = {change.after.id for change in last_units.values() if self._settle_parent(change, now_ms)}
        return [ChangeResult("applied", after, after.id in last) for after in afters]

    def _judge(self, change: SealedChange, now_ms: int) -> ChangeResult:
        """The outcome of a change; a stale one is recorded."""
        row = self._rows.jobs.get(change.before.id)
        outcome = judge(row, change, self._since(change))
        if row is None:
            return ChangeResult(outcome)
        if outcome == "stale":
            known = self._refusals.get(row.id, {})
            if change.before.token not in known:
                self._refusals[row.id] = {**known, change.before.token: refusal(change, now_ms)}
        elif outcome == "applied" and self._takes_unique(row, change.after):
            outcome = "conflict"
        elif outcome == "applied" and (holder := new_holder(change)) is not None and not self._is_open(holder):
            outcome = "no_session"
        return ChangeResult(outcome, row)

    def _settle_parent(self, change: SealedChange, now_ms: int) -> bool:
        """Whether a settled unit was the last open one of its parent; then moves the parent on."""
        rows, parent = self._rows, change.after.parent or ""
        if rows.open_units.get(parent):
            return False
        if moved := parent_move(rows.jobs.get(parent), change, now_ms, self.chain):
            rows.write(moved.job, moved.events, now_ms)
        return True

    def _is_open(self, session: str) -> bool:
        holder = self._sessions.get(session)
        return holder is not None and not holder.dead

    def _since(self, change: SealedChange) -> Sequence[Event]:
        """The stored events since the row that the change was decided on; usually none."""
        version, events = change.before.version, self._rows.events.get(change.before.id, [])
        if not events or events[-1].seq <= version:
            return ()
        start = bisect_right(events, version, key=lambda event: event.seq)
        return events[start : start + SINCE]

    def _takes_unique(self, row: Job, after: Job) -> bool:
        """Whether a settled job would become unsettled while another job holds its unique key."""
        if after.unique_key is None or not is_settled(row) or is_settled(after):
            return False
        return after.unique_key in self._rows.unique

    async def report(self, reports: Sequence[ClaimReport]) -> list[bool]:
        with self._writing() as now_ms:
            return [self._report(report, now_ms) for report in reports]

    def _report(self, report: ClaimReport, now_ms: int) -> bool:
        after = reported(self._rows.jobs.get(report.job_id), report, now_ms)
        if after is not None:
            self._rows.write(after, (), now_ms)
        return after is not None

    async def due(self, queues: Sequence[str]) -> int | None:
        with self._reading():
            # a paused queue releases no jobs; resuming it wakes its workers
            open_queues = [queue for queue in queues if not self._is_paused(queue)]
            times = [first[0] for queue in open_queues if (first := self._rows.due[queue].first()) is not None]
            # a job that waits for other jobs, or for cores, has no due time
            return min((at for at in times if at < PLACE_MS), default=None)

    def next_expiry(self) -> int | None:
        """When the next unsettled row expires; None if none does. For tests that move the clock."""
        with self._reading():
            first = self._rows.expiring.first()
            return None if first is None else first[0]

    async def overdue(self, limit: int = 100) -> list[Overdue]:
        with self._writing() as now_ms:
            self._declare_dead()
            rows = self._rows
            overdue: dict[str, Overdue] = {}
            for session in sorted(rows.held):
                holder = self._sessions.get(session)
                if holder is None or holder.dead:
                    overdue.update(
                        (job_id, Overdue(rows.jobs[job_id], "session")) for job_id in sorted(rows.held[session])
                    )
            for job_id in rows.expiring.until(now_ms):
                overdue.setdefault(job_id, Overdue(rows.jobs[job_id], "time"))
            return list(overdue.values())[:limit]

    def _declare_dead(self) -> None:
        now = self.clock.lease_ms()
        for session in list(self._sessions.values()):
            if session.dead and session.id not in self._rows.held:
                del self._sessions[session.id]
                self._marks.pop(session.id, None)
            elif not session.dead and not session.standing and now - session.beat_ms > session.lease_s * 1000:
                self._sessions[session.id] = msgspec.structs.replace(session, dead=True)
                self._leaders.depose(session.id)

    async def events(self, job_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        with self._reading():
            return [event for event in self._rows.events.get(job_id, ()) if event.seq > after][:limit]

    async def refusals(self, job_id: str) -> list[RefusedWrite]:
        with self._reading():
            return list(self._refusals.get(job_id, {}).values())

    async def awaited(self, job_id: str) -> list[str]:
        with self._reading():
            return list(self._rows.waits.on.get(job_id, ()))

    async def unit_counts(self, parent: str) -> dict[str, int]:
        with self._reading():
            rows = self._rows
            counts = Counter(rows.unit_counts.get(parent, {}))
            token = rows.jobs[parent].token if parent in rows.jobs else 0
            counts.subtract(rows.jobs[each].status for each in driver_ids(parent, token) if each in rows.jobs)
            return dict(+counts)

    async def stats(self) -> Stats:
        with self._reading() as now_ms:
            rows = self._rows
            queues = {}
            for queue in sorted({*rows.counts, *rows.ready}):
                counts = dict(rows.counts.get(queue, {}))
                waiting = [rows.jobs[job_id].due_ms for job_id in rows.ready.get(queue, ())]
                if counts or waiting:
                    queues[queue] = QueueStats(counts=counts, oldest_ready_ms=min(waiting, default=None))
            rates = rows.rates(now_ms)
            submitted = rates.pop(SUBMITTED, 0.0)
            return Stats(
                at_ms=now_ms,
                queues=queues,
                rates=rates,
                submitted=submitted,
                sessions=sum(not session.dead for session in self._sessions.values()),
                aside=sum(job.lane == Lane.ASIDE for job in rows.jobs.values()),
                leader=self._leaders.leading(LEADER, self.clock.lease_ms()),
                leads=self._leaders.held(self.clock.lease_ms()),
                routed={
                    queue: {route: len(line) for route, line in sorted(lines.items()) if len(line)}
                    for queue, lines in sorted(rows.routed.items())
                    if any(map(len, lines.values()))
                },
            )

    async def trim(self, policy: TrimPolicy, *, lead: Leadership | None = None) -> Trimmed:
        with self._writing() as now_ms:
            self._leaders.fence(lead, self.clock.lease_ms())
            jobs, more_jobs = trim_jobs(self._rows, policy, now_ms)
            events, more_events = trim_events(self._rows, policy, now_ms)
            expired = [name for name, (key, _) in self._keys.items() if key.until_ms <= now_ms]
            for name in expired[: policy.batch]:
                del self._keys[name]
            self._forget_refusals()
            self._schedules.forget_ticks()
            more = more_jobs or more_events or len(expired) > policy.batch
            return Trimmed(jobs, events, min(len(expired), policy.batch), more)

    async def delete(
        self, ids: Sequence[str], *, actor: str, reason: str, versions: Mapping[str, int] | None = None
    ) -> list[Deletion]:
        with self._writing() as now_ms:
            results = [self._delete(job_id, actor, reason, versions, now_ms) for job_id in ids]
            self._forget_refusals()
            return results

    def _forget_refusals(self) -> None:
        """Remove the refusals of missing jobs."""
        for job_id in [job_id for job_id in self._refusals if job_id not in self._rows.jobs]:
            del self._refusals[job_id]

    def _delete(
        self, job_id: str, actor: str, reason: str, versions: Mapping[str, int] | None, now_ms: int
    ) -> Deletion:
        job = self._rows.jobs.get(job_id)
        if job is None:
            return "missing"
        family = self._rows.family(job)
        result = deletion(job, any(row.session is not None for row in family), versions)
        if result != "deleted":
            return result
        for row in family[1:]:
            self._rows.remove(row)
        self._rows.remove(job, [tombstone(job, now_ms=now_ms, actor=actor, reason=reason, chain=self.chain)])
        return result

    # sessions and leadership ------------------------------------------------------------------------

    async def open_session(self, session: Session) -> None:
        admit_session(session.id)
        with self._writing():
            opened = msgspec.structs.replace(session, beat_ms=self.clock.lease_ms(), dead=False)
            known = self._sessions.get(session.id)
            if known is not None and not known.dead and known.is_draining:
                # its process may not have heard of it yet
                opened = msgspec.structs.replace(opened, **{name: getattr(known, name) for name in DRAINING})
            self._sessions[session.id] = opened

    async def beat(self, sessions: Sequence[str], reports: Sequence[ClaimReport] = ()) -> list[Pulse]:
        with self._writing() as now_ms:
            for report in reports:
                self._report(report, now_ms)
            return [self._beat(session) for session in sessions]

    def _beat(self, name: str) -> Pulse:
        session = self._sessions.get(name)
        if session is None or session.dead:
            return Pulse(session=name, known=False)
        self._sessions[name] = msgspec.structs.replace(session, beat_ms=self.clock.lease_ms())
        held = [self._rows.jobs[job_id] for job_id in sorted(self._rows.held.get(name, ()))]
        return Pulse(
            session=name,
            known=True,
            cancelling=tuple(job.id for job in held if is_stopping(job.parent, job.status)),
            assigned=tuple(job.id for job in held if job.status == "dispatched"),
            draining_by=session.draining_by if session.is_draining else None,
        )

    async def drain(self, sessions: Sequence[str], *, by: str) -> list[bool]:
        with self._writing() as now_ms:
            return [self._ask_to_drain(session, by, now_ms) for session in sessions]

    def _ask_to_drain(self, name: str, by: str, now_ms: int) -> bool:
        session = self._sessions.get(name)
        if session is None or session.dead:
            return False
        self._sessions[name] = session.drained(now_ms, by)
        return True

    async def close_session(self, session: str, *, lead: Leadership | None = None) -> None:
        with self._writing():
            self._leaders.fence(lead, self.clock.lease_ms())
            self._sessions.pop(session, None)
            self._marks.pop(session, None)
            self._leaders.depose(session)

    async def sessions(self) -> list[Session]:
        with self._reading():
            return list(self._sessions.values())

    async def lead(self, name: str, session: str, ttl_s: float) -> Leadership:
        with self._writing():
            current = self._leaders.current(name)
            holder = None if current is None else self._sessions.get(current.holder)
            if holder is not None and holder.dead:
                self._leaders.depose(holder.id)
            return self._leaders.lead(name, session, ttl_s, self.clock.lease_ms())

    async def resign(self, lead: Leadership) -> None:
        with self._writing():
            self._leaders.resign(lead)

    # settings ---------------------------------------------------------------------------------------

    async def set_queue(self, settings: QueueSettings) -> None:
        with self._writing() as now_ms:
            self._queues[settings.name] = settings
            if not settings.paused:
                self._promote_due(settings.name, now_ms)
                self._rows.woken[f"queue:{settings.name}"] = len(self._rows.ready[settings.name])

    async def queues(self) -> list[QueueSettings]:
        with self._reading():
            return [self._queues[name] for name in sorted(self._queues)]

    async def set_limit(self, key: str, most: int | None) -> None:
        if most is not None and most < 0:
            raise InvalidInput("limit", f"{most} for {key!r}: a limit is zero or more, or None to lift it")
        with self._writing():
            if most is None:
                self._limits.pop(key, None)
            else:
                self._limits[key] = most
            free = self._rows.free_slots(key, self._limits)
            self._rows.freed[key] += len(self._rows.jobs) if free is None else free

    async def limits(self) -> dict[str, int]:
        with self._reading():
            return dict(self._limits)

    async def put_schedule(self, schedule: Schedule) -> None:
        with self._writing():
            self._schedules.put(schedule)

    async def pause_schedule(self, name: str, *, paused: bool) -> bool:
        with self._writing():
            return self._schedules.pause(name, paused=paused)

    async def schedules(self) -> list[Schedule]:
        with self._reading():
            return self._schedules.all()

    async def drop_schedule(self, name: str) -> bool:
        with self._writing():
            return self._schedules.drop(name)

    async def tick(
        self, name: str, at_ms: int, jobs: Sequence[NewJob], *, lead: Leadership | None = None
    ) -> list[InsertResult] | None:
        with self._writing() as now_ms:
            self._leaders.fence(lead, self.clock.lease_ms())
            if self._schedules.ticked(name, at_ms):
                return None
            results = self._insert(jobs, now_ms)
            self._schedules.tick(name, at_ms)
            return results

    # wake and check ---------------------------------------------------------------------------------

    def wake(self, topics: Sequence[str]) -> MemoryWake:
        return self._hub.subscribe(topics)

    async def audit(self, *, after: str = "", limit: int = 500) -> list[Audited]:
        with self._reading():
            start = bisect_right(self._rows.ids, after)
            jobs = [self._rows.jobs[job_id] for job_id in self._rows.ids[start : start + limit]]
            return [
                Audited(job=job, events=[e for e in self._rows.events[job.id] if e.seq > job.trimmed_seq], key=job)
                for job in jobs
            ]

    async def check(self, *, repair: bool = False, quick: bool = False) -> list[Violation]:  # noqa: ARG002 - as good
        with self._writing() as now_ms:
            violations = check(self._rows, self._limits, self.chain, now_ms, repair=repair)
            violations += self._leaders.check(self.clock.lease_ms(), repair=repair)
            strays = [job_id for job_id in self._refusals if job_id not in self._rows.jobs]
            if repair:
                self._forget_refusals()
            return [*violations, *(stray_refusal(job_id, repaired=repair) for job_id in strays)]

    async def mend(self, found: Audited, after: Job, events: Sequence[Event]) -> bool:
        with self._writing() as now_ms:
            if self._rows.jobs.get(after.id) != found.key:
                return False
            self._rows.touch(after.id)
            stored = self._rows.events[after.id]
            replaced = {event.seq for event in events}
            stored[:] = [event for event in stored if event.seq not in replaced]
            self._rows.write(after, events, now_ms)
            return True


async def open_memory(url: str, *, clock: Clock, chain: Chain, options: dict[str, str]) -> JobStore:
    """Open `memory:`: an empty store, every time."""
    if options:
        raise InvalidInput("store", f"{url!r}: a memory store takes no options ({', '.join(sorted(options))})")
    return MemoryStore(clock, chain)
