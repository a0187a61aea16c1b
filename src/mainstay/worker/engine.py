"""The engine: one process's loop. Claims jobs in batches, runs them, and has their endings written in batches.

    claim -> waiting (held, not begun) -> running -> ledger -> store

- *Claiming* never stops for running, nor running for acknowledging: each goes on while the others wait for the store.
- *Limits* (run timeout, stall, grace) are kept here, by a tick ten times a second while anything runs. A job is first
  told to stop; when its grace is over a child process is killed, and a thread or coroutine, which cannot be, is left
  behind: its ending is written without it, and the engine retires so that a fresh process takes its place.
- *Losing the session* (silent for too long) means that others have our jobs: they are told to stop, nothing is
  written for them, and work goes on under a new session.
- *Draining* gives back what has not begun, waits for the rest within the grace, gives back what did not finish.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ..control import Control, error_info
from ..errors import SessionLost, StaleClaim, StoreError, UnknownTask
from ..model import Job, Session
from ..stores import Report
from .attempt import attempt
from .context import Context
from .endings import Ending, Failed, Halted
from .ledger import CANCELLED, DRAINED, LOST, Entry, Ledger, Parked
from .outage import Outage
from .pace import Pace
from .program import Program, Work
from .recorder import Recorder
from .run import EngineLink, Run

if TYPE_CHECKING:
    from .children import Children

log = logging.getLogger("mainstay.worker")

_TICK_S = 0.1
#: how often what jobs say of their progress is stored
_REPORT_S = 0.5
#: a claimed job that could not begin for so long goes back, for others to take
_HELD_S = 2.0
#: how long the answer to "when is the next row due" is used
_DUE_S = 0.2
_SHORTEST_WAIT_S = 0.001
#: from so many lost claims on a job is run in a process of its own: it may be what kills its workers
SUSPECT_RELEASES = 3
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
        open_session: Callable[[], Awaitable[Session]] | None = None,
        on_retire: Callable[[str], None] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.program = program
        self.control = control
        self.session = session
        self.queues = tuple(queues)
        self.loop = asyncio.get_running_loop()
        self.stopped = asyncio.Event()
        self.left_behind = 0
        """threads and coroutines that would not stop"""
        settings = control.settings
        self._concurrency = concurrency or settings.concurrency
        self._poll_s = settings.poll_s
        self._clock = control.store.clock
        self._recorder = recorder
        self._children = children
        self._open_session = open_session
        self._on_retire = on_retire
        self._rng = rng or random.Random()
        self._ledger = Ledger(control, rng=self._rng)
        self._ledger.before_write = self._send_reports
        self._pace = Pace(concurrency=self._concurrency, batch=settings.claim_batch)
        self._threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="mainstay-job")
        self._works: dict[tuple[str, str], Work] = {}
        self._free = list(range(self._concurrency - 1, -1, -1))
        self._waiting: deque[Job] = deque()
        self._waiting_since_s = 0.0
        self._running: dict[int, Run] = {}
        """by slot: after a lost session the same job may be here twice, once stopping and once anew"""
        self._reports: dict[Run, Report] = {}
        self._reported_s = 0.0
        self._due_ms: int | None = None
        self._asked_due_s = -1.0
        self._side: set[asyncio.Future[None]] = set()
        self._room = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._ticking = False
        self._retired = False
        self._draining = False
        self._loops: list[asyncio.Task[None]] = []
        self._draining_task: asyncio.Task[None] | None = None
        self._renewing = asyncio.Lock()

    # life ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to claim and to listen for cancels."""
        self._ledger.start()
        self._loops = [
            asyncio.create_task(self._claim_for_ever(), name="mainstay claims"),
            asyncio.create_task(self._listen_for_ever(), name="mainstay cancels"),
        ]

    def drain(self, grace_s: float) -> None:
        """Take no more jobs and come to an end within the grace. A shorter one replaces a longer one."""
        before, self._draining_task = self._draining_task, None
        if before is not None:
            before.cancel()
        self._draining = True
        self._draining_task = asyncio.create_task(self._drain(grace_s), name="mainstay drain")

    async def _drain(self, grace_s: float) -> None:
        await self._stop_claiming()
        self._give_back_waiting()
        if not await self._quiet_within(grace_s):
            for run in list(self._running.values()):
                self._halt(run, DRAINED, "its worker stops", grace_s=0.0 if run.child is not None else _LAST_WORD_S)
            await self._quiet_within(_LAST_WORD_S)
            for run in list(self._running.values()):
                self._leave_behind(run)
        await self._ledger.flush()
        await self._ledger.stop()
        if self._children is not None:
            await self._children.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.stopped.set()

    async def idle(self) -> None:
        """Wait until nothing is held and every ending is stored."""
        await self._quiet.wait()
        await self._ledger.flush()

    @property
    def held(self) -> int:
        """Jobs it holds, begun or not."""
        return len(self._running) + len(self._waiting)

    @property
    def running(self) -> Collection[Run]:
        return self._running.values()

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

    async def _claim_for_ever(self) -> None:
        outage = Outage("claim", self._rng)
        while True:
            try:
                async with self.control.store.wake([f"queue:{queue}" for queue in self.queues]) as wake:
                    while True:
                        wanted = await self._wanted()
                        taken = await self._claim(wanted)
                        outage.over()
                        if len(taken) < wanted:
                            await wake.wait(await self._until_due())
            except Exception as error:  # noqa: BLE001 - an engine that claims no more looks alive and does nothing
                await asyncio.sleep(outage.failed(error))

    async def _wanted(self) -> int:
        """How many to claim; waits until there is room for one."""
        while True:
            self._room.clear()
            wanted = self._pace.wanted(running=len(self._running), waiting=len(self._waiting))
            if wanted and not self._retired:
                return wanted
            await self._room.wait()

    async def _claim(self, n: int) -> list[Job]:
        """Take some. A claim that is called off by a drain is given back by the store."""
        session = self.session.id
        try:
            jobs = await self.control.claim(self.queues, session, n)
        except SessionLost:
            await self.lose_session(session)
            return []
        self._take(jobs)
        return jobs

    async def _until_due(self) -> float:
        """How long to wait for a wake: a row that gets due wakes nobody."""
        now_s = self.loop.time()
        if now_s - self._asked_due_s > _DUE_S:
            self._due_ms = await self.control.store.due(self.queues)
            self._asked_due_s = now_s
        if self._due_ms is None:
            return self._poll_s
        left_s = (self._due_ms - self._clock.now_ms()) / 1000
        if left_s <= 0:
            self._asked_due_s = -1.0
        return min(self._poll_s, max(_SHORTEST_WAIT_S, left_s))

    def _take(self, jobs: Sequence[Job]) -> None:
        if not jobs:
            return
        self._quiet.clear()
        if not self._waiting:
            self._waiting_since_s = self.loop.time()
        self._waiting.extend(jobs)
        self._begin_waiting()
        if not self._ticking:
            self._ticking = True
            self.loop.call_later(_TICK_S, self._tick)

    def _begin_waiting(self) -> None:
        while self._waiting and self._free and not self._draining:
            self._begin(self._waiting.popleft())
            self._waiting_since_s = self.loop.time()

    # running ------------------------------------------------------------------------------------

    def _begin(self, job: Job) -> None:
        work = self._works.get((job.kind, job.name))
        if work is None:
            try:
                work = self._works[job.kind, job.name] = self.program.work(job.kind, job.name)
            except UnknownTask as error:
                self._end(job, self._parked(job, error))
                self._made_room()
                return
        run = Run(job, work, self._free.pop(), self._clock.now_ms())
        run.apart = self._children is not None and (work.mode == "process" or _is_suspect(job))
        run.context = Context(job, EngineLink(self, run), pack=self.program.pack, unpack=self.program.unpack)
        self._running[run.slot] = run
        if self._recorder is not None:
            self._recorder.begin(
                run.slot,
                job.id,
                token=job.token,
                started_ms=run.started_ms,
                deadline_ms=run.recorded_deadline_ms,
                apart=run.apart,
            )
        run.task = self.loop.create_task(self._perform(run))

    async def _perform(self, run: Run) -> None:
        run.begun = True
        try:
            if run.cause:
                ending: Ending = Halted(run.cause)
            elif run.apart:
                ending = await self._apart(run)
            else:
                ending = await attempt(self.program, run.work, run.context, self._threads)
        except Exception as error:
            log.exception("run failed in the worker itself job_id=%s", run.job.id)
            ending = Failed(error=error_info(error))
        self._finish(run, ending)

    async def _apart(self, run: Run) -> Ending:
        """In a child process. A suspect's start is stored first, so that the blame is exact; one that crashed twice
        gets a process that nothing else has used."""
        assert self._children is not None
        if _is_suspect(run.job) and not (await self.control.start([run.job]))[0]:
            run.cause = LOST
        if run.cause:
            return Halted(run.cause)
        run.child = self._children.begin(run.job, run.context, fresh=run.job.crashes > 1)
        return await run.child.ending

    def _finish(self, run: Run, ending: Ending) -> None:
        if run.over:
            log.info("came to its end after it was given up job_id=%s", run.job.id)
            self.left_behind -= 1
            return
        self._let_go(run)
        self._free.append(run.slot)
        if run.cause != LOST or not isinstance(ending, Halted):
            self._end(run.job, ending, run)
        self._pace.finished(self._clock.now_ms() - run.started_ms)
        self._begin_waiting()
        self._made_room()

    def _let_go(self, run: Run) -> None:
        run.over = True
        if self._recorder is not None:
            self._recorder.end(run.slot)
        del self._running[run.slot]

    def _made_room(self) -> None:
        self._room.set()
        if not self._running and not self._waiting:
            self._quiet.set()

    def _end(self, job: Job, ending: Ending | Parked, run: Run | None = None) -> None:
        if run is None:
            self._ledger.add(Entry(job, ending))
        else:
            decide = getattr(run.work, "decide", None)
            self._ledger.add(Entry(job, ending, run.started_ms, run.cause, decide))

    def _parked(self, job: Job, error: UnknownTask) -> Parked:
        wait_s = min(_LONGEST_PARK_S, _FIRST_PARK_S * 2.0 ** min(job.releases, 10))
        return Parked(wait_s, f"{error}; it waits for a worker that has it")

    # stopping -----------------------------------------------------------------------------------

    def cancel(self, ids: Collection[str]) -> None:
        """Stop jobs that were cancelled."""
        waiting = [job for job in self._waiting if job.id in ids]
        for job in waiting:
            self._waiting.remove(job)
            self._ledger.add(Entry(job, Halted("cancelled before it began"), None, CANCELLED))
        for run in list(self._running.values()):
            if run.job.id in ids and not run.cause:
                self._halt(run, CANCELLED, "cancelled", grace_s=run.job.options.grace_s)
        if waiting:
            self._made_room()

    async def lose_session(self, session: str) -> None:
        """Others have our jobs: stop them, write nothing about them, go on under a new session."""
        async with self._renewing:
            if session != self.session.id or self._draining:
                return
            log.warning("session lost session=%s jobs=%d; stopping them", session, self.held)
            self._waiting.clear()
            for run in list(self._running.values()):
                self._halt(run, LOST, "its worker lost its session", grace_s=run.job.options.grace_s)
            self._made_room()
            if self._open_session is not None:
                self.session = await self._open_session()

    def _halt(self, run: Run, cause: str, why: str, *, grace_s: float) -> None:
        if run.cause:
            run.kill_ms = min(run.kill_ms, self._clock.now_ms() + int(grace_s * 1000))
            return
        run.cause = cause
        run.kill_ms = self._clock.now_ms() + int(grace_s * 1000)
        run.context.stop(why)
        self.record(run)
        if run.child is not None:
            run.child.stop(why)
            if grace_s == 0:
                run.child.kill()
        elif run.begun and run.work.is_async and not run.apart:
            run.task.cancel()

    def _leave_behind(self, run: Run) -> None:
        """It would not stop. Write its ending without it; its slot stays taken, and this process is no longer clean."""
        self._let_go(run)
        self.left_behind += 1
        if run.cause != LOST:
            self._end(run.job, Halted("did not stop within its grace"), run)
        log.error("would not stop job_id=%s name=%s cause=%s", run.job.id, run.job.name, run.cause)
        self.retire(f"job {run.job.id} ({run.job.name}) would not stop")
        self._made_room()

    def retire(self, reason: str) -> None:
        """Take no more jobs, because this process is no longer clean, and say so once."""
        if self._retired or self._draining:
            return
        self._retired = True
        log.warning("retiring session=%s: %s", self.session.id, reason)
        self._give_back_waiting()
        if self._on_retire is not None:
            self._on_retire(reason)

    def _give_back_waiting(self) -> None:
        waiting = list(self._waiting)
        self._waiting.clear()
        for job in waiting:
            self._ledger.add(Entry(job, Halted("not begun"), None, DRAINED))
        self._made_room()

    # watching -----------------------------------------------------------------------------------

    def record(self, run: Run) -> None:
        """Show the supervisor until when it may run now."""
        if self._recorder is not None:
            self._recorder.move_deadline(run.slot, run.recorded_deadline_ms)

    def _tick(self) -> None:
        if self._recorder is not None:
            self._recorder.tick()
        if not self._running and not self._waiting:
            self._ticking = False
            return
        self.loop.call_later(_TICK_S, self._tick)
        now_ms = self._clock.now_ms()
        for run in list(self._running.values()):
            self._watch(run, now_ms)
        if self._waiting and self.loop.time() - self._waiting_since_s > _HELD_S:
            self._give_back_waiting()
        if self._reports and self.loop.time() - self._reported_s > _REPORT_S:
            self._spawn(self._report_quietly())

    def _watch(self, run: Run, now_ms: int) -> None:
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
        outage = Outage("cancels", self._rng)
        while True:
            session = self.session.id
            try:
                async with self.control.store.wake([f"session:{session}"]) as wake:
                    while self.session.id == session:
                        if await wake.wait(self._poll_s):
                            await self._obey(session)
                            outage.over()
            except Exception as error:  # noqa: BLE001 - as for claims
                await asyncio.sleep(outage.failed(error))

    async def _obey(self, session: str) -> None:
        (pulse,) = await self.control.beat([session])
        await self.pulsed(session, known=pulse.known, cancelling=pulse.cancelling)

    async def pulsed(self, session: str, *, known: bool, cancelling: Collection[str]) -> None:
        """What the store said to a beat of ours."""
        if not known:
            await self.lose_session(session)
        elif cancelling:
            self.cancel(set(cancelling))

    # reports ------------------------------------------------------------------------------------

    def note(self, run: Run, report: Report) -> None:
        """Keep what a job says until the next write. May be called from any thread."""
        run.progress_ms = self._clock.now_ms()
        self._reports[run] = report
        if run.job.options.stall_timeout_s is not None and not run.cause:
            self.record(run)

    async def report_now(self, run: Run, checkpoint: bytes | None = None) -> None:
        """Store that it began, how far it came, and its checkpoint; raises `StaleClaim`."""
        said = self._reports.pop(run, None)
        report = Report(
            job_id=run.job.id,
            session=run.job.session or "",
            token=run.job.token,
            started_ms=run.started_ms,
            progress=None if said is None else said.progress,
            checkpoint=checkpoint,
        )
        if not (await self.control.report([report]))[0]:
            raise StaleClaim(f"job {run.job.id}: the claim was lost; stop the work")

    async def _send_reports(self) -> None:
        """Store what was said since the last time; kept if the store is away, unless newer has come."""
        if not self._reports:
            return
        self._reported_s = self.loop.time()
        # taken one by one: threads add to it meanwhile
        said = {run: report for run in list(self._reports) if (report := self._reports.pop(run, None)) is not None}
        try:
            answers = await self.control.report(list(said.values()))
        except StoreError:
            for run, report in said.items():
                self._reports.setdefault(run, report)
            raise
        for run, held in zip(said, answers, strict=True):
            if not held and not run.over:
                self._halt(run, LOST, "its claim was lost", grace_s=run.job.options.grace_s)

    async def _report_quietly(self) -> None:
        with contextlib.suppress(StoreError):  # told by whoever claims and acknowledges
            await self._send_reports()

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._side.add(task)
        task.add_done_callback(self._side.discard)


def _is_suspect(job: Job) -> bool:
    """Whether it may be what killed its workers: then it runs where it can kill nobody else."""
    return job.crashes > 0 or job.releases >= SUSPECT_RELEASES
