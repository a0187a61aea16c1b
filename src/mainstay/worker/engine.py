"""The engine: one process's loop. Claims jobs in batches, runs them, and has their endings written in batches.

    claims -> held (not begun) -> running -> ledger -> store

- *Claiming* never stops for running, nor running for acknowledging: each goes on while the others wait for the store.
- *Limits* (run timeout, stall, grace) are kept here, by a tick ten times a second while anything runs. A job is first
  told to stop; when its grace is over a child process is killed. A thread or coroutine cannot be: it is left behind,
  and the engine retires. Its ending is written last of all, right before the process goes, so that the job does not
  run anew beside its own ghost.
- *Losing the session* (silent for too long) means that others have our jobs: they are told to stop, nothing is
  written for them, and work goes on under a new session.
- *Draining* gives back what has not begun, waits for the rest within the grace, gives back what did not finish.
- Every few seconds it compares what the store says it holds with what it has. Whatever was lost on the way between the
  two, through whatever mistake, goes back to the queue. What was taken from it is told to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

from ..control import Control, error_info
from ..control.rules.blame import is_suspect, runs_alone
from ..errors import SessionLost, StoreError, UnknownTask
from ..model import Job, Session
from ..stores import Change, Query
from ..stores.routes import Offers
from .attempt import attempt
from .claim_audit import Claim, ClaimAudit
from .claim_loop import ClaimLoop
from .claimed import ClaimedJobs
from .endings import Ending, Failed, Gone, Halted
from .ledger import CANCELLED, DRAINED, LOST, OVERRAN, STALLED, Ledger, LedgerEntry, Parked
from .outage import Outage
from .pace import ClaimPace
from .program import Program, Work, offer_of
from .recorder import Recorder
from .reports import Reports
from .run import JobRun
from .solo_turn import SoloTurn

if TYPE_CHECKING:
    from .children import Children

log = logging.getLogger("mainstay.worker")

_TICK_S = 0.1
_RECONCILE_S = 5.0
_RECONCILED = 1000
#: how long a job that is to run alone is put off when another engine of this worker runs one
_ALONE_LATER_S = 5.0
_FIRST_PARK_S = 30.0
_LONGEST_PARK_S = 600.0
#: how long a coroutine or child may take to stop once a drain's grace is over
_LAST_WORD_S = 2.0


class Engine:
    """Runs the jobs of some queues for one session. `start`, then `drain`; `stopped` is set when it is over."""

    def __init__(
        self,
        program: Program,
        control: Control,
        session: Session,
        *,
        queues: Sequence[str],
        concurrency: int | None = None,
        recorder: Recorder | None = None,
        children: Children | None = None,
        solitude: SoloTurn | None = None,
        open_session: Callable[[], Awaitable[Session]] | None = None,
        on_retire: Callable[[str], None] | None = None,
        keep: Callable[[Sequence[Change]], object] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.program = program
        self.control = control
        self.session = session
        self.queues = tuple(queues)
        self.loop = asyncio.get_running_loop()
        self.stopped = asyncio.Event()
        self.reports = Reports(control, record=self.record, lost=self._lose_claim)
        settings = control.settings
        self._clock = control.store.clock
        self._recorder = recorder
        self._children = children
        self._solitude = solitude
        self._alone = False
        """the one job that runs here has the engine for itself"""
        self._open_session = open_session
        self._on_retire = on_retire
        self._keep = keep
        """what to do with endings that the store does not take before the grace is over; None: wait on"""
        self.rng = rng or random.Random()
        self._ledger = Ledger(control, rng=self.rng, before_write=self.reports.send, on_stored=self._stored)
        concurrency = concurrency or settings.concurrency
        self._most_unstored = settings.unstored or concurrency
        """how many jobs may have begun and not be stored as ended: that many run again if this process is killed"""
        self._pace = ClaimPace(concurrency=concurrency, batch=settings.claim_batch)
        self._claims = ClaimLoop(
            control.store,
            queues=lambda: self.queues,
            wanted=self._wanted,
            claim=self._claim,
            poll_s=settings.poll_s,
            rng=self.rng,
        )
        self._poll_s = settings.poll_s
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="mainstay-job")
        # for work that belongs into a process of its own where there are none: never two at a time in this process
        self._one_thread = ThreadPoolExecutor(1, thread_name_prefix="mainstay-job-alone")
        self._works: dict[tuple[str, str], Work] = {}
        self._offers = Offers()
        self._free = list(range(concurrency - 1, -1, -1))
        self._held = ClaimedJobs()
        self._running: dict[int, JobRun] = {}
        """by slot: after a lost session the same job may be here twice, once stopping and once anew"""
        self._behind: list[JobRun] = []
        """what would not stop"""
        self._clean = contextvars.copy_context()
        """what every run begins with: nothing that another job has set"""
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._account = ClaimAudit()
        self._ticking = False
        self._ticked_s = 0.0
        self._stood_still = False
        self._retired = False
        self._draining: asyncio.Task[None] | None = None
        self._loops: list[asyncio.Task[None]] = []
        self._renewing = asyncio.Lock()

    # life ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to claim and to listen for cancels."""
        self._ledger.start()
        self._loops = [
            asyncio.create_task(self._claims.for_ever(), name="mainstay claims"),
            asyncio.create_task(self._listen_for_ever(), name="mainstay cancels"),
            asyncio.create_task(self._reconcile_for_ever(), name="mainstay reconciler"),
        ]

    def drain(self, grace_s: float) -> None:
        """Take no more jobs and come to an end within the grace. Told again, the new grace counts from then."""
        self._drain_by(self._drain(grace_s, DRAINED))

    def abandon(self) -> None:
        """The supervisor is dead: end at once, and write nothing about jobs that have not ended. The sweep finds them,
        and counts the loss; a job that kills its supervisor must not get away because its engine lived a moment
        longer."""
        self._drain_by(self._drain(0.0, LOST))

    def _drain_by(self, drain: Coroutine[Any, Any, None]) -> None:
        before, self._draining = self._draining, None
        if before is not None:
            before.cancel()
        self._draining = asyncio.create_task(drain, name="mainstay drain")

    async def _drain(self, grace_s: float, cause: str) -> None:
        ends_s = self.loop.time() + grace_s
        await self._stop_claiming()
        if cause == LOST:
            self._held.everything()
            self._made_room()
        else:
            self._give_back(self._held.everything())
        if not await self._quiet_within(grace_s):
            for run in list(self._running.values()):
                self._halt(run, cause, "its worker stops", grace_s=0.0 if run.child is not None else _LAST_WORD_S)
            await self._quiet_within(_LAST_WORD_S)
            for run in list(self._running.values()):
                self._leave_behind(run)
        flushed = await self._flushed_by(ends_s)
        for run in self._behind:
            self._end(run, Halted("did not stop within its grace"))
        if not flushed or not await self._flushed_by(ends_s):
            await self._keep_aside()
        await self._ledger.stop()
        if self._children is not None:
            await self._children.close()
        for threads in (self._threads, self._one_thread):
            threads.shutdown(wait=False, cancel_futures=True)
        self.stopped.set()

    async def _flushed_by(self, ends_s: float) -> bool:
        """Whether every ending is stored in time."""
        wait_s = None if self._keep is None else max(_LAST_WORD_S, ends_s - self.loop.time())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._ledger.flush()
                return True
        return False

    async def _keep_aside(self) -> None:
        assert self._keep is not None
        if changes := await self._ledger.take():
            self._keep(changes)

    async def idle(self) -> None:
        """Wait until nothing is held and every ending is stored."""
        await self._quiet.wait()
        await self._ledger.flush()

    @property
    def held(self) -> int:
        """Jobs it holds, begun or not."""
        return len(self._running) + len(self._held)

    @property
    def running(self) -> Collection[JobRun]:
        return self._running.values()

    @property
    def left_behind(self) -> int:
        """Threads and coroutines that would not stop, and still go on."""
        return len(self._behind)

    async def _stop_claiming(self) -> None:
        loops, self._loops = self._loops, []
        for task in loops:
            task.cancel()
        if loops:
            await asyncio.wait(loops)

    async def _quiet_within(self, wait_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._quiet.wait()
        return self._quiet.is_set()

    # claiming -----------------------------------------------------------------------------------

    def _wanted(self, asked: int) -> int:
        """How many to ask for now, beside those that were asked for."""
        if self._retired or self._alone or (self._held and runs_alone(self._held.first)):
            return 0
        return self._pace.wanted(running=len(self._running), waiting=len(self._held) + asked)

    async def _claim(self, n: int) -> list[Job]:
        session = self.session.id
        try:
            jobs = await self.control.claims.claim(self.queues, session, n)
        except SessionLost:
            await self.lose_session(session)
            return []
        if session != self.session.id or self._renewing.locked():
            return []  # lost before the answer came: somebody else has them
        self._take(jobs)
        return jobs

    def _take(self, jobs: Sequence[Job]) -> None:
        if not jobs:
            return
        self._quiet.clear()
        self._held.add(jobs, now_s=self.loop.time())
        self._begin_held(self._clock.lease_ms())
        if not self._ticking:
            self._ticking = True
            self._ticked_s = self.loop.time()
            self.loop.call_later(_TICK_S, self._tick)

    def _begin_held(self, now_ms: int) -> None:
        """`now_ms` is lease time: whoever calls this has just read it."""
        while (
            self._held
            and self._free
            and len(self._running) + self._ledger.unstored < self._most_unstored
            and self._draining is None
            and not self._alone
        ):
            if not runs_alone(self._held.first):
                self._begin(self._held.next(), now_ms)
            elif self._running:
                return  # it waits until the others have ended; nothing is claimed meanwhile
            else:
                self._begin_alone(self._held.next(), now_ms)

    def _begin_alone(self, job: Job, now_ms: int) -> None:
        """It was lost with its workers time and again: if that goes on, its engine has run nothing else."""
        if self._solitude is not None and not self._solitude.take():
            reason = "another job runs alone in this worker; it has to wait for it"
            self._ledger.add(LedgerEntry(job, Parked(_ALONE_LATER_S, reason)))
            self._made_room()
            return
        log.warning("runs alone job_id=%s name=%s: it was lost with its worker %d times", job.id, job.name, job.losses)
        self._alone = True
        self._begin(job, now_ms)
        if not self._running:  # this program has no such task
            self._company()

    def _company(self) -> None:
        """Others may run again."""
        self._alone = False
        if self._solitude is not None:
            self._solitude.release()

    def _give_back(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._ledger.add(LedgerEntry(job, Halted("not begun"), None, DRAINED))
        self._made_room()

    def _made_room(self) -> None:
        self._claims.made_room()
        if not self._running and not self._held:
            self._quiet.set()

    # running ------------------------------------------------------------------------------------

    def _begin(self, job: Job, began_ms: int) -> None:
        work = self._works.get((job.kind, job.name))
        if work is None:
            try:
                work = self._works[job.kind, job.name] = self.program.work(job.kind, job.name)
            except UnknownTask as error:
                self._offers.warn(job)
                self._ledger.add(LedgerEntry(job, _parked(job, error)))
                self._made_room()
                return
        run = JobRun(
            self,
            job,
            work,
            self._free.pop(),
            apart=self._children is not None and (work.mode == "process" or is_suspect(job)),
            started_ms=self._clock.now_ms(),
            began_ms=began_ms,
        )
        run.alone = self._alone
        self._running[run.slot] = run
        if not run.waits:
            self._record_start(run)
        run.task = asyncio.Task(self._perform(run), loop=self.loop, context=self._clean.copy())

    async def _perform(self, run: JobRun) -> None:
        run.begun = True
        try:
            if run.cause:
                ending: Ending = Halted(run.cause)
            elif run.apart:
                ending = await self._apart(run)
            else:
                threads = self._one_thread if run.work.mode == "process" else self._threads
                ending = await attempt(self.program, run.work, run.context, threads)
        except Exception as error:
            log.exception("run failed in the worker itself job_id=%s", run.job.id)
            ending = Failed(error=error_info(error))
        self._finish(run, ending)

    async def _apart(self, run: JobRun) -> Ending:
        """In a child process. A suspect's start is stored first, so that the blame is exact; one that crashed twice, or
        runs alone, gets a process that nothing else has used."""
        assert self._children is not None
        if is_suspect(run.job) and not await self._start_stored(run):
            return Halted(run.cause)
        run.child = self._children.begin(run.job, run.context, fresh=run.job.crashes > 1 or run.alone)
        run.child.begun.add_done_callback(lambda _: self._taken(run))
        return await run.child.ending

    def _taken(self, run: JobRun) -> None:
        if not run.over:
            run.taken(started_ms=self._clock.now_ms(), began_ms=self._clock.lease_ms())
            self._record_start(run)

    async def _start_stored(self, run: JobRun) -> bool:
        """As soon as the store takes it; False if it was told to stop meanwhile, or was lost."""
        outage = Outage("start", self.rng)
        while not run.cause:
            try:
                if not (await self.control.claims.start([run.job]))[0]:
                    self._lose_claim(run)
            except StoreError as error:
                await asyncio.sleep(outage.failed(error))
            else:
                outage.over()
                break
        return not run.cause

    def _finish(self, run: JobRun, ending: Ending) -> None:
        if run.over:
            log.info("came to its end after it was given up job_id=%s", run.job.id)
            return
        self._let_go(run)
        self._free.append(run.slot)
        self._end(run, ending)
        now_ms = self._clock.lease_ms()
        self._pace.finished(now_ms - run.began_ms, at_ms=self.loop.time() * 1000, waiting=len(self._held))
        self._begin_held(now_ms)
        self._made_room()

    def _stored(self) -> None:
        """Endings have reached the store: others may begin in their place."""
        if self._held:
            self._begin_held(self._clock.lease_ms())
            self._made_room()

    def _let_go(self, run: JobRun) -> None:
        run.over = True
        del self._running[run.slot]
        if run.alone:
            self._company()
        if self._recorder is not None:
            self._recorder.end(run.slot)

    def _end(self, run: JobRun, ending: Ending) -> None:
        if isinstance(ending, Gone) or (run.cause == LOST and isinstance(ending, Halted)):
            return  # somebody else has it
        if run.cause in (DRAINED, OVERRAN, STALLED) and isinstance(ending, Failed):
            # an error on the way out is not what ended it
            log.info("failed while it stopped job_id=%s: %s: %s", run.job.id, ending.error.type, ending.error.message)
            ending = Halted(run.cause)
        self._ledger.add(LedgerEntry(run.job, ending, run.started_ms, run.cause, run.work.decide))

    # stopping -----------------------------------------------------------------------------------

    def cancel(self, ids: Collection[str]) -> None:
        """Stop jobs that were cancelled."""
        for job in self._held.only(ids):
            self._ledger.add(LedgerEntry(job, Halted("cancelled before it began"), None, CANCELLED))
        for run in list(self._running.values()):
            if run.job.id in ids and not run.cause:
                self._halt(run, CANCELLED, "cancelled", grace_s=run.job.options.grace_s)
        self._made_room()

    async def lose_session(self, session: str) -> None:
        """Others have our jobs: stop them, write nothing about them, go on under a new session."""
        async with self._renewing:
            if session != self.session.id or self._draining is not None:
                return
            log.warning("session lost session=%s jobs=%d; stopping them", session, self.held)
            self._held.everything()
            for run in list(self._running.values()):
                self._halt(run, LOST, "its worker lost its session", grace_s=run.job.options.grace_s)
            self._made_room()
            if self._open_session is not None:
                self.session = await self._open_session()

    def _lose_claims(self, claims: Collection[Claim]) -> None:
        """Others have these, or nobody is to have them: stop them, write nothing about them."""
        log.warning("not held any more jobs=%s; stopping them", ",".join(id_ for id_, _ in sorted(claims)[:5]))
        self._held.only({id_ for id_, _ in claims})
        for run in list(self._running.values()):
            if (run.job.id, run.job.token) in claims:
                self._lose_claim(run)
        self._made_room()

    def _lose_claim(self, run: JobRun) -> None:
        self._halt(run, LOST, "its claim was lost", grace_s=run.job.options.grace_s)

    def _halt(self, run: JobRun, cause: str, why: str, *, grace_s: float) -> None:
        run.halt(cause, why, kill_ms=self._clock.lease_ms() + int(grace_s * 1000))
        self.record(run)
        if run.child is not None and grace_s == 0:
            run.child.kill()

    def _leave_behind(self, run: JobRun) -> None:
        """It would not stop, and cannot be made to: its slot stays taken and this process is no longer clean."""
        self._let_go(run)
        self._behind.append(run)
        log.error("would not stop job_id=%s name=%s cause=%s", run.job.id, run.job.name, run.cause)
        self.retire(f"job {run.job.id} ({run.job.name}) would not stop")
        self._made_room()

    def retire(self, reason: str) -> None:
        """Take no more jobs, because this process is no longer clean, and say so once."""
        if self._retired or self._draining is not None:
            return
        self._retired = True
        log.warning("retiring session=%s: %s", self.session.id, reason)
        self._give_back(self._held.everything())
        if self._on_retire is not None:
            self._on_retire(reason)

    # watching -----------------------------------------------------------------------------------

    def _record_start(self, run: JobRun) -> None:
        """Show the supervisor that it runs."""
        if self._recorder is not None:
            self._recorder.begin(
                run.slot,
                run.job.id,
                token=run.job.token,
                started_ms=run.started_ms,
                deadline_ms=run.recorded_deadline_ms,
                apart=run.apart,
            )

    def record(self, run: JobRun) -> None:
        """Show the supervisor until when it may run now."""
        if self._recorder is not None and not run.over and not run.waits:
            self._recorder.move_deadline(run.slot, run.recorded_deadline_ms)

    def _tick(self) -> None:
        if self._recorder is not None:
            self._recorder.tick()
        if not self._running and not self._held:
            self._ticking = False
            return
        self.loop.call_later(_TICK_S, self._tick)
        now_ms = self._clock.lease_ms()
        for run in list(self._running.values()):
            self._watch(run, now_ms)
        self._give_back_stale(self.loop.time())
        if self.reports.due:
            self._ledger.wake()

    def _give_back_stale(self, now_s: float) -> None:
        """Unless the loop stood still and this is its first turn: then they waited for that, and begin now."""
        stood_still, self._ticked_s = now_s - self._ticked_s > 2 * _TICK_S, now_s
        if stood_still and not self._stood_still:
            self._stood_still = True
            return
        self._stood_still = stood_still
        if stale := self._held.too_long(now_s=now_s, patient=runs_alone):
            self._pace.stuck()
            self._give_back(stale)

    def _watch(self, run: JobRun, now_ms: int) -> None:
        if not run.cause:
            if now_ms >= run.deadline_ms:
                self._halt(run, run.overrun, run.overrun, grace_s=run.job.options.grace_s)
        elif now_ms >= run.kill_ms:
            if run.child is not None:
                run.child.kill()
            else:
                self._leave_behind(run)

    async def _listen_for_ever(self) -> None:
        """A cancel reaches us here at once; should that fail, with the next beat."""
        outage = Outage("cancels", self.rng)
        while True:
            session = self.session.id
            try:
                async with self.control.store.wake([f"session:{session}"]) as wake:
                    while self.session.id == session:
                        if await wake.wait(self._poll_s):
                            (pulse,) = await self.control.claims.beat([session])
                            outage.over()
                            await self.pulsed(session, known=pulse.known, cancelling=pulse.cancelling)
            except Exception as error:  # noqa: BLE001 - as for claims
                await asyncio.sleep(outage.failed(error))

    async def pulsed(self, session: str, *, known: bool, cancelling: Collection[str]) -> None:
        """What the store said to a beat of ours."""
        if not known:
            await self.lose_session(session)
        elif cancelling:
            self.cancel(set(cancelling))

    async def _reconcile_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_RECONCILE_S)
            with contextlib.suppress(StoreError):  # told by whoever claims and acknowledges
                await self._reconcile()
                await self._offer_again()

    async def _reconcile(self) -> None:
        """Give back what we hold by the store's account and know nothing of, and stop what we run and it says we do not
        hold: a unit is cancelled at once, and a run that says nothing would never hear of it."""
        session = self.session.id
        ours = self._at_work(session)
        page = await self.control.store.find(Query(session=session), limit=_RECONCILED)
        if session != self.session.id:
            return
        rows = {(row.id, row.token): row for row in page.jobs}
        runs = (*self._running.values(), *self._behind)
        known = {(job.id, job.token) for job in (*self._held, *self._ledger.jobs, *(run.job for run in runs))}
        # neither what was claimed since we asked nor what has ended is missing there
        ours &= self._at_work(session)
        unknown, absent = self._account.compare(rows.keys(), known=known, ours=ours, whole=page.cursor is None)
        if unknown:
            log.error("held and unknown jobs=%s; giving them back", ",".join(id_ for id_, _ in sorted(unknown)[:5]))
            self._give_back([rows[claim] for claim in unknown])
        if absent:
            self._lose_claims(absent)

    async def _offer_again(self) -> None:
        """A task may have been added since the session was opened, by a module that a job imported."""
        session, now = self.session, offer_of(self.program, self.queues)
        if session.offer is None or now is None or now.tasks.keys() == session.offer.tasks.keys():
            return
        (pulse,) = await self.control.claims.beat([session.id])
        if pulse.known and session.id == self.session.id and not self._renewing.locked():
            self.session = msgspec.structs.replace(session, offer=now)
            await self.control.store.open_session(self.session)

    def _at_work(self, session: str) -> set[Claim]:
        """What we hold under a session, begun or not, and were not told to stop."""
        going_on = (run.job for run in self._running.values() if not run.cause)
        return {(job.id, job.token) for job in (*self._held, *going_on) if job.session == session}


def _parked(job: Job, error: UnknownTask) -> Parked:
    wait_s = min(_LONGEST_PARK_S, _FIRST_PARK_S * 2.0 ** min(job.releases, 10))
    return Parked(wait_s, f"{error}; it waits for a worker that has it")
