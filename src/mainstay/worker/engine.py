"""The engine: one process's loop. It claims jobs in batches, runs them, and has their ends written in batches.

    ClaimLoop -> EngineSession -> Runs -> Ledger -> store

- `ClaimLoop` decides when to claim, `EngineSession` claims, `Runs` begins, runs and ends jobs, the `Ledger` stores
  their ends. Each goes on while the others wait for the store.
- `Runs` also watches the limits of running jobs. `EngineSession` brings cancels, and every few seconds compares the
  claims that the store lists with those that are known here.
- *Draining* gives back jobs that have not begun, waits for the others within the grace, and gives back those that did
  not finish. `runs` lists all ways in which an engine parts with a job.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Collection, Coroutine, Sequence
from typing import Any

from ..control import Control
from ..errors import StoreError
from ..model import Session
from ..stores import is_managed
from .claim_loop import ClaimLoop
from .engine_session import EngineSession
from .ledger import Ledger
from .program import Program
from .reports import Reports
from .run import DRAINED, LOST, JobRun
from .runs import EngineProcess, Runs

__all__ = ["Engine", "EngineProcess"]

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
        process: EngineProcess | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.control = control
        self.stopped = asyncio.Event()
        self._process = process = process or EngineProcess()
        rng = rng or random.Random()
        reports = Reports(control)
        self._ledger = Ledger(control, rng=rng, reports=reports)
        self._runs = Runs(
            program,
            control,
            self._ledger,
            reports,
            concurrency=concurrency or control.settings.concurrency,
            process=process,
            rng=rng,
        )
        self._session = EngineSession(
            program, control, self._runs, session, queues=queues, open_session=process.open_session, rng=rng
        )
        self._claims = ClaimLoop(
            control.store,
            queues=lambda: self._session.queues,
            wanted=self._runs.wanted,
            claim=self._session.claim,
            room=self._runs.room,
            poll_s=_poll_s(control),
            rng=rng,
        )
        self._draining: asyncio.Task[None] | None = None
        self._isolated = False
        self._loops: list[asyncio.Task[None]] = []
        self._watching: asyncio.Task[None] | None = None

    # state --------------------------------------------------------------------------------------

    @property
    def session(self) -> Session:
        return self._session.current

    @property
    def queues(self) -> tuple[str, ...]:
        return self._session.queues

    @queues.setter
    def queues(self, queues: Sequence[str]) -> None:
        self._session.queues = tuple(queues)

    @property
    def held(self) -> int:
        """Jobs it holds, begun or not."""
        return len(self._runs)

    @property
    def running(self) -> Collection[JobRun]:
        return self._runs.running

    @property
    def left_behind(self) -> int:
        """Threads and coroutines that did not stop, and still go on."""
        return len(self._runs.left_behind)

    async def idle(self) -> None:
        """Wait until it holds no job and every end is stored."""
        await self._runs.idle.wait()
        await self._ledger.flush()

    def cores_elsewhere(self, cores: int) -> None:
        """Slices in other engines of the node hold this number of its cores now: the tasks here get the rest."""
        self._runs.cores_elsewhere(cores)

    async def pulsed(
        self, session: str, *, known: bool, cancelling: Collection[str], assigned: Collection[str] = ()
    ) -> None:
        """The answer of the store to a heartbeat of this session."""
        await self._session.pulsed(session, known=known, cancelling=cancelling, assigned=assigned)

    # start --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to claim and to listen for cancels. The session of a node also takes the work that is placed there;
        without queues it takes nothing else."""
        self._ledger.start()
        self._watching = asyncio.create_task(self._runs.watch(), name="mainstay limits")
        if self._session.queues:
            self._loops.append(asyncio.create_task(self._claims.run(), name="mainstay claims"))
        if self._session.current.node:
            self._loops.append(asyncio.create_task(self._session.placed.run(), name="mainstay placed work"))
        self._loops += [
            asyncio.create_task(self._session.listen(), name="mainstay cancels"),
            asyncio.create_task(self._session.audit(), name="mainstay audit"),
        ]

    # drain --------------------------------------------------------------------------------------

    def drain(self, grace_s: float) -> None:
        """Take no more jobs and stop within the grace. When called again, the new grace counts from then."""
        if not self._isolated:  # it stops sooner than any grace
            self._start_drain(self._drain(grace_s, DRAINED))

    def abandon(self) -> None:
        """The supervisor is dead: stop at once, and write nothing about jobs that have not ended. The sweep finds them
        and counts the loss; a job that kills its supervisor must not get away because its engine lived a moment
        longer."""
        self._start_drain(self._drain(0.0, LOST))

    def isolate(self, grace_s: float) -> None:
        """Its node hears no manager, so its jobs may begin elsewhere soon: stop all of them within the grace. Their
        ends, and those that the store has not taken, are kept for later."""
        if not self._isolated:
            self._start_drain(self._stop_isolated(grace_s))
            self._isolated = True

    def _start_drain(self, drain: Coroutine[Any, Any, None]) -> None:
        self._runs.close()
        if self._draining is not None:
            self._draining.cancel()
        self._draining = asyncio.create_task(drain, name="mainstay drain")

    async def _drain(self, grace_s: float, cause: str) -> None:
        ends_s = asyncio.get_running_loop().time() + grace_s
        await self._stop_claiming()
        if cause == LOST:
            self._runs.disown_waiting()
        else:
            self._runs.give_back_waiting()
            await self._leave_node()
        if not await self._idle_within(grace_s):
            self._runs.stop_all(cause, "its worker stops", grace_s=_LAST_WORD_S)
            await self._idle_within(_LAST_WORD_S)
            for run in self._runs:
                self._runs.leave_behind(run)
        flushed = await self._flushed_by(ends_s)
        self._runs.end_left_behind()
        if self._runs.left_behind and self._process.keep is not None:
            # what did not stop still runs: its end is written by the supervisor, when this process has ended
            await self._keep_unwritten()
        elif not flushed or not await self._flushed_by(ends_s):
            await self._keep_unwritten()
        await self._close()
        self.stopped.set()

    async def _stop_isolated(self, grace_s: float) -> None:
        self._runs.stop_all(DRAINED, "its node hears no manager", grace_s=grace_s)
        await self._stop_claiming()
        self._runs.give_back_waiting()
        await self._idle_within(grace_s)
        for run in self._runs:
            self._runs.leave_behind(run)
        self._runs.end_left_behind()
        await self._keep_unwritten()
        await self._close()
        self.stopped.set()

    async def _stop_claiming(self) -> None:
        loops, self._loops = self._loops, []
        for task in loops:
            task.cancel()
        if loops:
            await asyncio.wait(loops)

    async def _leave_node(self) -> None:
        """A store that does not answer must not delay the drain: what is assigned here goes back when its time to be
        confirmed is over."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_LAST_WORD_S):
                await self._session.leave()

    async def _idle_within(self, wait_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._runs.idle.wait()
        return self._runs.idle.is_set()

    async def _flushed_by(self, ends_s: float) -> bool:
        """Whether every end is stored in time."""
        left_s = ends_s - asyncio.get_running_loop().time()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if self._process.keep is None else max(_LAST_WORD_S, left_s)):
                await self._ledger.flush()
                return True
        return False

    async def _keep_unwritten(self) -> None:
        if self._process.keep is None:
            return  # the store takes their work back
        if changes := await self._ledger.take():
            self._process.keep(changes)

    async def _close(self) -> None:
        await self._ledger.stop()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        if self._process.children is not None:
            await self._process.children.close()
        self._runs.close_threads()


def _poll_s(control: Control) -> float:
    """How long an idle engine waits for a wake before it polls. Behind managers, polls are most of what an idle cluster
    does; what was missed is found there as late as by a heartbeat."""
    settings = control.settings
    return max(settings.poll_s, settings.heartbeat_s) if is_managed(control.store) else settings.poll_s
