"""The jobs of an engine, from their claim to their end:

    claimed -> waiting -> begun -> running -> ended -> ledger

Ways to part with a job other than its own end:

- *give back*: it has not begun. It returns to the queue, for another session.
- *stop* (`JobRun.stop`): it runs, and is asked to stop: it was cancelled, overran, stalled, or its worker drains. Its
  end is written when it has stopped.
- *disown*: another session has it, or none may have it any more. It is dropped, or asked to stop if it runs; nothing is
  written.
- *leave behind*: it did not stop within its grace, and a thread or coroutine cannot be killed. Its slot stays taken and
  the engine retires. Its end is written last, right before the process exits, so that the job does not run elsewhere
  beside its own ghost.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import math
import random
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import msgspec

from ..control import Control, error_info, is_suspect, runs_alone
from ..errors import InvalidInput, StoreError, UnknownTask
from ..model import Job, Session
from ..stores import AnyChange, Offers
from .attempt import attempt
from .attempt_end import attempt_end
from .children import Children
from .claim_audit import Claim
from .claimed import ClaimedJobs
from .endings import Ending, Failed, Halted
from .job_context import Context
from .ledger import Ledger
from .node_cores import NodeCores
from .outage import Outage
from .pace import ClaimPace
from .program import Program, Work, supervises
from .recorder import Recorder
from .reports import Reports, RunLink
from .run import CANCELLED, DRAINED, LOST, OVERRAN, STALLED, JobRun
from .solo_turn import SoloLock

log = logging.getLogger("mainstay.worker")

_TICK_S = 0.1
#: how long a job that has to run alone is postponed when another engine of this worker runs one
_ALONE_LATER_S = 5.0
_FIRST_PARK_S = 30.0
_LONGEST_PARK_S = 600.0
#: the longest reason that control takes
_REASON_LIMIT = 1000


class EngineProcess(msgspec.Struct, frozen=True, kw_only=True):
    """The process that an engine runs in: what it shares with its supervisor and its children, and who is called when
    the engine cannot go on by itself. All of it is optional."""

    recorder: Recorder | None = None
    children: Children | None = None
    """without them, every job runs in this process"""
    solo_turn: SoloLock | None = None
    open_session: Callable[[], Awaitable[Session]] | None = None
    """opens the next session when one was lost"""
    on_retire: Callable[[str], None] | None = None
    """called once, with the reason, when the engine takes no more jobs because its process is not clean"""
    cores: NodeCores = msgspec.field(default_factory=NodeCores)
    """of its node"""
    keep: Callable[[Sequence[AnyChange]], object] | None = None
    """keeps the changes that the store does not take before a drain's grace is over; None: the drain waits"""
    most_jobs: int | None = None
    """jobs that it runs at a time, also those that need no slot; None: any number of these"""


class Runs:
    """The jobs that an engine has claimed: some wait to begin, others run."""

    def __init__(
        self,
        program: Program,
        control: Control,
        ledger: Ledger,
        reports: Reports,
        *,
        concurrency: int,
        process: EngineProcess,
        rng: random.Random,
    ) -> None:
        settings = control.settings
        self._program = program
        self._control = control
        self._ledger = ledger
        self._reports = reports
        self._process = process
        self._rng = rng
        self._ends = control.attempts.ends
        self._clock = control.store.clock
        self._loop = asyncio.get_running_loop()
        self._most_unstored = settings.unstored or concurrency
        """how many jobs may have begun and not be stored as ended: they run again if this process is killed"""
        self._pace = ClaimPace(concurrency=concurrency, batch=settings.claim_batch)
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="mainstay-job")
        # for work that belongs in a child process when there are none: never two at a time in this process
        self._one_thread = ThreadPoolExecutor(1, thread_name_prefix="mainstay-job-alone")
        self._works: dict[tuple[str, str], Work] = {}
        self._unserved = Offers(self._loop.time)
        self._concurrency = concurrency
        self._free_slots = list(range(concurrency - 1, -1, -1))
        self._beside = 0
        """how many runs only supervise: they are in no slot of the concurrency"""
        self._waiting = ClaimedJobs()
        self._running: dict[int, JobRun] = {}
        """by slot: after a lost session the same job may be here twice, once stopping and once claimed again"""
        self.left_behind: list[JobRun] = []
        self._clean_context = contextvars.copy_context()
        """every run begins with it: nothing that another job has set"""
        self._alone = False
        """the one job that runs has the engine for itself"""
        self.closed = False
        self._retired = False
        self._ticked_s = 0.0
        self._was_late = False
        self.room = asyncio.Event()
        """set when more may be wanted than a moment ago"""
        self.busy = asyncio.Event()
        """set while a job waits or runs"""
        self.idle = asyncio.Event()
        """the opposite of `busy`"""
        self.idle.set()
        ledger.on_stored = self._stored

    def __len__(self) -> int:
        """All of them, begun or not."""
        return len(self._running) + len(self._waiting)

    def __iter__(self) -> Iterator[JobRun]:
        """Those that run; a run may end while they are looked through."""
        return iter(tuple(self._running.values()))

    @property
    def running(self) -> Collection[JobRun]:
        return self._running.values()

    @property
    def retired(self) -> bool:
        """Whether the engine takes no more jobs because its process is not clean."""
        return self._retired

    # claim --------------------------------------------------------------------------------------

    def wanted(self, requested: int) -> int:
        """How many jobs to claim now, besides those that were requested already."""
        if self._retired or self._alone or (self._waiting and runs_alone(self._waiting.first)):
            return 0
        waiting = len(self._waiting) + requested
        wanted = self._pace.wanted(running=self._in_slots, waiting=waiting)
        if self._process.most_jobs is not None:
            wanted = max(0, min(wanted, self._process.most_jobs - len(self._running) - waiting))
        slots = self._process.cores.slots(self._concurrency)
        return wanted if slots == self._concurrency else max(0, min(wanted, slots - self._in_slots - waiting))

    def cores_elsewhere(self, cores: int) -> None:
        """Other engines of the node hold this number of cores now."""
        self._process.cores.elsewhere = cores
        self._made_room()

    def take(self, jobs: Sequence[Job]) -> None:
        """Run these jobs, which were just claimed."""
        if jobs:
            self._accept(jobs, now_s=self._loop.time())

    def take_placed(self, jobs: Sequence[Job]) -> None:
        """Run these jobs, which were placed here: they wait for a slot for as long as it takes."""
        self._accept(jobs, now_s=math.inf)

    def _accept(self, jobs: Sequence[Job], *, now_s: float) -> None:
        """Have jobs wait for slots, except those that only supervise processes of their own: they begin now."""
        self.idle.clear()
        self.busy.set()
        now_ms = self._clock.lease_ms()
        patient: list[Job] = []
        for job in jobs:
            if self._needs_no_slot(job):
                self._begin(job, now_ms)
            else:
                patient.append(job)
        self._waiting.add(patient, now_s=now_s)
        self._begin_waiting(now_ms)

    def _needs_no_slot(self, job: Job) -> bool:
        if self.closed:
            return False  # it is given back
        work = self._works.get((job.kind, job.name))
        try:
            return supervises(work or self._program.work(job.kind, job.name))
        except UnknownTask:
            return False  # it is put off when it would begin

    @property
    def _in_slots(self) -> int:
        return len(self._running) - self._beside

    def _slot_for(self, work: Work) -> int:
        if not supervises(work):
            return self._free_slots.pop()
        taken = {*self._running, *(run.slot for run in self.left_behind)}
        return next(slot for slot in itertools.count(self._concurrency) if slot not in taken)

    def has_work(self, job: Job) -> bool:
        """Whether the program has the work for a job. If not, the job is given back for a while."""
        return self._work_of(job) is not None

    # begin --------------------------------------------------------------------------------------

    def _begin_waiting(self, now_ms: int) -> None:
        """`now_ms` is lease time: the caller has just read it."""
        while (
            self._waiting
            and self._free_slots
            and self._in_slots + self._ledger.unstored < self._most_unstored
            and not self.closed
            and not self._alone
        ):
            if not runs_alone(self._waiting.first):
                self._begin(self._waiting.next(), now_ms)
            elif self._in_slots:
                return  # it waits until the others have ended; until then nothing is claimed
            else:
                self._begin_alone(self._waiting.next(), now_ms)

    def _begin_alone(self, job: Job, now_ms: int) -> None:
        """It was lost with its workers again and again. If it is lost once more, its engine has run nothing else."""
        solo_turn = self._process.solo_turn
        if solo_turn is not None and not solo_turn.take():
            self._park(job, _ALONE_LATER_S, "another job runs alone in this worker; it has to wait for it")
            return
        log.warning("runs alone job_id=%s name=%s: it was lost with its worker %d times", job.id, job.name, job.losses)
        self._alone = True
        self._begin(job, now_ms)
        if not self._in_slots:  # this program has no such task
            self._end_alone()

    def _end_alone(self) -> None:
        self._alone = False
        if self._process.solo_turn is not None:
            self._process.solo_turn.release()

    def _work_of(self, job: Job) -> Work | None:
        """The work for a job; None: the program has none, and the job is postponed."""
        work = self._works.get((job.kind, job.name))
        if work is None:
            try:
                work = self._works[job.kind, job.name] = self._program.work(job.kind, job.name)
            except UnknownTask as error:
                self._unserved.warn(job)
                wait_s = min(_LONGEST_PARK_S, _FIRST_PARK_S * 2.0 ** min(job.releases, 10))
                self._park(job, wait_s, f"{error}; it waits for a worker that has it")
        return work

    def _begin(self, job: Job, began_ms: int) -> None:
        if (work := self._work_of(job)) is None:
            return
        beside = supervises(work)
        self._beside += beside
        run = JobRun(
            job,
            work,
            self._slot_for(work),
            clock=self._clock,
            recorder=self._process.recorder,
            began_ms=began_ms,
            apart=not beside and self._process.children is not None and (work.mode == "process" or is_suspect(job)),
            alone=self._alone and not beside,
            supervises=beside,
        )
        program = self._program
        link = RunLink(run, self._control, self._reports, program.unpack, self._loop, self._rng, self._process.cores)
        run.context = Context(job, link, pack=program.pack, unpack=program.unpack)
        self._running[run.slot] = run
        if not run.waits:
            run.record_start()
        run.task = asyncio.Task(self._run(run), loop=self._loop, context=self._clean_context.copy())

    def _park(self, job: Job, wait_s: float, reason: str) -> None:
        # a program with many tasks lists them all in its error
        short = reason if len(reason) <= _REASON_LIMIT else f"{reason[: _REASON_LIMIT - 3]}..."
        try:
            end = self._ends.park(job, timedelta(seconds=wait_s), short)
        except InvalidInput as error:  # the program's own text cannot be stored
            end = self._ends.failure(job, error_info(error, retryable=False))
        self._ledger.add(end)
        self._made_room()

    # run ----------------------------------------------------------------------------------------

    async def _run(self, run: JobRun) -> None:
        run.begun = True
        try:
            if run.cause:
                ending: Ending = Halted(run.cause)
            elif run.apart:
                ending = await self._run_in_child(run)
            else:
                threads = self._one_thread if run.work.mode == "process" else self._threads
                ending = await attempt(self._program, run.work, run.context, threads)
        except Exception as error:
            log.exception("run failed in the worker itself job_id=%s", run.job.id)
            ending = Failed(error=error_info(error))
        self._end(run, ending)

    async def _run_in_child(self, run: JobRun) -> Ending:
        """A suspect's start is stored first, so that the blame is exact. A job that crashed twice, or runs alone, gets
        a process that has run nothing else."""
        assert self._process.children is not None
        if is_suspect(run.job) and not await self._store_start(run):
            return Halted(run.cause)
        run.child = self._process.children.begin(run.job, run.context, fresh=run.job.crashes > 1 or run.alone)
        run.child.begun.add_done_callback(lambda _: None if run.over else run.start_in_child())
        return await run.child.ending

    async def _store_start(self, run: JobRun) -> bool:
        """Wait until the store has it; False if it was asked to stop first, or its claim was lost."""
        outage = Outage("start", self._rng)
        while not run.cause:
            try:
                if not (await self._control.claims.start([run.job]))[0]:
                    run.lose_claim()
            except StoreError as error:
                await asyncio.sleep(outage.failed(error))
            else:
                outage.over()
                break
        return not run.cause

    # end ----------------------------------------------------------------------------------------

    def _end(self, run: JobRun, ending: Ending) -> None:
        self._process.cores.release(run)
        if run.over:
            log.info("ended after it was left behind job_id=%s", run.job.id)
            return
        self._forget(run)
        self._write_end(run, ending)
        now_ms = self._clock.lease_ms()
        if not run.supervises:
            self._free_slots.append(run.slot)
            self._pace.finished(now_ms - run.began_ms, at_ms=self._loop.time() * 1000, waiting=len(self._waiting))
        self._begin_waiting(now_ms)
        self._made_room()

    def _forget(self, run: JobRun) -> None:
        run.over = True
        del self._running[run.slot]
        self._beside -= run.supervises
        if run.alone:
            self._end_alone()
        run.record_end()

    def _write_end(self, run: JobRun, ending: Ending) -> None:
        if run.cause in (DRAINED, OVERRAN, STALLED) and isinstance(ending, Failed):
            # an error on the way out is not what ended it
            log.info("failed while it stopped job_id=%s: %s: %s", run.job.id, ending.error.type, ending.error.message)
            ending = Halted(run.cause)
        end = attempt_end(self._ends, run, ending)
        if end is not None:
            self._ledger.add(end)

    def _stored(self) -> None:
        """Ends have reached the store: others may begin in their place."""
        if self._waiting:
            self._begin_waiting(self._clock.lease_ms())
            self._made_room()

    def _made_room(self) -> None:
        self.room.set()
        if not self._running and not self._waiting:
            self.idle.set()
            self.busy.clear()

    # limits -------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Check the limits of the runs ten times a second while there are jobs, until cancelled."""
        while True:
            await self.busy.wait()
            self._ticked_s = self._loop.time()
            while self.busy.is_set():
                await asyncio.sleep(_TICK_S)
                try:
                    self.tick()
                except Exception:
                    log.exception("the limits of the running jobs could not be checked; trying again")

    def tick(self) -> None:
        if self._process.recorder is not None:
            self._process.recorder.tick()
        now_ms = self._clock.lease_ms()
        for run in self:
            self._check(run, now_ms)
        self._give_back_stale(self._loop.time())
        if self._reports.due:
            self._ledger.wake()

    def _check(self, run: JobRun, now_ms: int) -> None:
        """Over its limit, it is asked to stop. After its grace, a child process is killed; a thread or coroutine cannot
        be killed."""
        if not run.cause:
            if now_ms >= run.deadline_ms:
                run.stop(run.overrun, run.overrun)
        elif now_ms >= run.kill_ms:
            if run.child is not None:
                run.child.kill()
            else:
                self.leave_behind(run)

    def _give_back_stale(self, now_s: float) -> None:
        """Give back the jobs that have waited too long: another session may have a free slot. Not at the first tick
        after the loop stood still: then jobs waited for the loop, and begin now."""
        is_late, self._ticked_s = now_s - self._ticked_s > 2 * _TICK_S, now_s
        first_late, self._was_late = is_late and not self._was_late, is_late
        if not first_late and (stale := self._waiting.too_long(now_s=now_s, patient=runs_alone)):
            self._pace.stuck()
            self.give_back(stale)

    # part with jobs -----------------------------------------------------------------------------

    def give_back(self, jobs: Sequence[Job], reason: str = "its worker gave it back before it began") -> None:
        """Jobs that have not begun return to the queue."""
        for job in jobs:
            self._ledger.add(self._ends.release(job, reason))
        self._made_room()

    def give_back_waiting(self) -> None:
        self.give_back(self._waiting.everything())

    def cancel(self, ids: Collection[str]) -> None:
        """Stop jobs that were cancelled."""
        for job in self._waiting.only(ids):
            self._ledger.add(self._ends.cancellation(job))
        for run in self:
            if run.job.id in ids and not run.cause:
                run.stop(CANCELLED, "cancelled")
        self._made_room()

    def stop_all(self, cause: str, why: str, *, grace_s: float) -> None:
        """Ask every running job to stop; a child process is killed at once."""
        for run in self:
            run.stop(cause, why, grace_s=0.0 if run.child is not None else grace_s)

    def disown(self, claims: Collection[Claim]) -> None:
        """The session no longer has these claims."""
        log.warning("claims lost jobs=%s; stopping them", ",".join(id_ for id_, _ in sorted(claims)[:5]))
        self._waiting.only({id_ for id_, _ in claims})
        for run in self:
            if (run.job.id, run.job.token) in claims:
                run.lose_claim()
        self._made_room()

    def disown_waiting(self) -> None:
        self._waiting.everything()
        self._made_room()

    def disown_all(self) -> None:
        """The session is lost, and every claim with it."""
        for run in self:
            run.stop(LOST, "its worker lost its session")
        self.disown_waiting()

    def leave_behind(self, run: JobRun) -> None:
        """It does not stop and cannot be killed: its slot stays taken, and this process is no longer clean."""
        self._forget(run)
        self.left_behind.append(run)
        log.error("would not stop job_id=%s name=%s cause=%s", run.job.id, run.job.name, run.cause)
        self.retire(f"job {run.job.id} ({run.job.name}) would not stop")
        self._made_room()

    def end_left_behind(self) -> None:
        """Write the ends of the jobs that are left behind: the process is about to exit."""
        for run in self.left_behind:
            self._write_end(run, Halted("did not stop within its grace"))

    def retire(self, reason: str) -> None:
        """Take no more jobs, because this process is no longer clean; reported once."""
        if self._retired or self.closed:
            return
        self._retired = True
        log.warning("retiring: %s", reason)
        self.give_back_waiting()
        if self._process.on_retire is not None:
            self._process.on_retire(reason)

    def close(self) -> None:
        """Begin no more jobs: the engine drains."""
        self.closed = True

    def close_threads(self) -> None:
        for threads in (self._threads, self._one_thread):
            threads.shutdown(wait=False, cancel_futures=True)

    # audit --------------------------------------------------------------------------------------

    def jobs(self) -> Iterator[Job]:
        """All jobs that are known here, also those that are left behind or whose ends are not stored yet."""
        yield from self._waiting
        yield from self._ledger.jobs
        for run in (*self._running.values(), *self.left_behind):
            yield run.job

    def claims_of(self, session: str) -> set[Claim]:
        """The claims under a session, begun or not, of jobs that were not asked to stop."""
        active = (run.job for run in self._running.values() if not run.cause)
        return {(job.id, job.token) for job in (*self._waiting, *active) if job.session == session}
