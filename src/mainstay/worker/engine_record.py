"""One engine of a supervisor: its process, and what is known about it."""

from __future__ import annotations

import asyncio
import logging

from ..stores import ClaimReport
from .crash_blame import EngineDeath
from .messages import CoresElsewhere, Drain, Hello, Isolate, Pulsed, StartClaiming
from .processes import ProcessHandle
from .recorder import Running

log = logging.getLogger("mainstay.worker")

#: why the jobs of a node that hears no manager are given back
ISOLATED = "its node heard no manager"
#: how long a job may be over its deadline before its engine counts as stuck
STUCK_S = 1.0
#: after this number of checks without a turn of the loop, the engine is logged as blocked
_QUIET_LOOKS = 5


class EngineRecord:
    """An engine from its start until its jobs are settled."""

    def __init__(self, started_s: float) -> None:
        self.process: ProcessHandle
        self.started_s = started_s
        """when it was started, by the loop's clock"""
        self.hello: Hello | None = None
        self.session: str | None = None
        """the session that needs heartbeats; None before it has one, and after it lost one"""
        self.claiming = asyncio.Event()
        """it may claim jobs"""
        self.leaving = asyncio.Event()
        """it takes no more jobs, by its own decision or ours; its slot is free"""
        self.reaped: asyncio.Task[None]
        """done when its process has ended and its jobs are settled"""
        self.unfit: str | None = None
        self.blamed: tuple[Running, ...] = ()
        self.kill_reason: str | None = None
        self.cores = 0
        """of the node, that its slices of load tests hold"""
        self._cores_elsewhere = 0
        self._marked: set[tuple[str, int]] = set()
        self._late: dict[tuple[str, int], float] = {}
        self._cancelling: set[str] = set()
        self._taken_away: set[str] = set()
        self._ticks = 0
        self._quiet = 0

    # messages to it -----------------------------------------------------------------------------

    def start_claiming(self) -> None:
        """Let it claim."""
        self.process.send(StartClaiming())
        self.claiming.set()

    def drain(self, grace_s: float) -> None:
        """Let it finish. An engine that has not claimed yet holds nothing, and is killed."""
        self.leaving.set()
        if self.claiming.is_set():
            self.process.send(Drain(grace_s))
        else:
            self.kill(reason="its worker was stopped")

    def isolate(self, grace_s: float) -> None:
        """Have it stop everything within the grace, and exit. One that has not claimed yet is killed."""
        self.leaving.set()
        if self.claiming.is_set():
            self.process.send(Isolate(grace_s))
        else:
            self.kill(reason=ISOLATED)

    def tell_cores(self, elsewhere: int) -> None:
        """Tell it how many cores of the node its siblings hold, if that has changed."""
        if elsewhere != self._cores_elsewhere:
            self._cores_elsewhere = elsewhere
            self.process.send(CoresElsewhere(elsewhere))

    def pulsed(self, message: Pulsed) -> None:
        """Pass on the answer of the store to its heartbeat."""
        if not message.known and message.session == self.session:
            self.session = None  # it opens another and sends `Hello` again
        elif message.session == self.session:
            self._follow_cancels(set(message.cancelling))
        self.process.send(message)

    def _follow_cancels(self, cancelling: set[str]) -> None:
        """Find jobs that were cancelled, that the store no longer lists for this session, and that still run: their
        grace is over and a sweep has ended them. The engine did not receive the cancel, or cannot act."""
        if not (cancelling or self._cancelling or self._taken_away):
            return
        running = {entry.job_id for entry in self.running()}
        self._taken_away = (self._taken_away | (self._cancelling - cancelling)) & running
        self._cancelling = cancelling & running

    def kill(self, *, reason: str | None = None, blamed: tuple[Running, ...] = ()) -> None:
        """SIGKILL. The first reason counts."""
        if self.kill_reason is None and not self.blamed and not self.dead:
            self.kill_reason, self.blamed = reason, blamed
        self.leaving.set()
        self.process.kill()

    # its state ----------------------------------------------------------------------------------

    @property
    def dead(self) -> bool:
        """Its process has ended."""
        return self.process.ended.done()

    @property
    def killed(self) -> bool:
        """The supervisor killed it, or tried to."""
        return self.kill_reason is not None or bool(self.blamed)

    def running(self) -> list[Running]:
        """The jobs that it runs now."""
        return self.process.recorder.running()

    def marks(self) -> list[ClaimReport]:
        """Start marks that the store does not have yet."""
        if self.session is None:
            return []
        running = self.running()
        self._marked &= {(entry.job_id, entry.token) for entry in running}
        return [
            ClaimReport(job_id=entry.job_id, session=self.session, token=entry.token, started_ms=entry.started_ms)
            for entry in running
            if entry.started_ms and (entry.job_id, entry.token) not in self._marked
        ]

    def marked(self, marks: list[ClaimReport]) -> None:
        """The store has them."""
        self._marked |= {(mark.job_id, mark.token) for mark in marks}

    def stuck(self, now_ms: int, loop_s: float) -> tuple[Running, ...]:
        """Jobs that are over their deadline, or that a sweep has ended, and that the engine had time to end.

        That time counts from when they were first found, by a clock that stands still when the machine sleeps: after a
        sleep every deadline has passed, through no fault of the engine.
        """
        late = [entry for entry in self.running() if 0 < entry.deadline_ms < now_ms or entry.job_id in self._taken_away]
        since_s = self._late
        self._late = {claim: since_s.get(claim, loop_s) for entry in late if (claim := (entry.job_id, entry.token))}
        return tuple(entry for entry in late if loop_s - self._late[entry.job_id, entry.token] >= STUCK_S)

    def warn_if_blocked(self) -> None:
        """Log once that its loop does not turn while it runs jobs (an idle loop need not): something blocks it, and it
        cannot enforce the limits of its jobs."""
        ticks, before = self.process.recorder.ticks, self._ticks
        self._ticks = ticks
        running = self.running() if ticks == before else []
        self._quiet = self._quiet + 1 if running else 0
        if self._quiet == _QUIET_LOOKS:
            ids = ",".join(entry.job_id for entry in running[:5])
            log.warning(
                "engine's loop is blocked pid=%d jobs=%s; an `async def` must not block: make it a plain `def`",
                self.process.pid,
                ids,
            )

    def death(self, status: int) -> EngineDeath | None:
        """How it ended; None if it never had a session."""
        session = self.session or (self.hello.session if self.hello else None)
        if session is None:
            return None
        return EngineDeath(
            session=session,
            status=status,
            running=tuple(self.running()),
            blamed=self.blamed,
            kill_reason=self.kill_reason,
        )
