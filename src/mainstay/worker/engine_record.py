"""One engine of a crew: its process, and what its supervisor knows and thinks of it."""

from __future__ import annotations

import asyncio
import logging

from ..stores import ClaimReport
from .crash_blame import Death
from .messages import Drain, Hello, Pulsed, StartClaiming
from .recorder import Running
from .spawn import EngineHandle

log = logging.getLogger("mainstay.worker")

#: how long past its deadline a job may be seen before its engine is taken for stuck
STUCK_S = 1.0
#: a loop that has not turned for so many looks is worth a word
_QUIET_LOOKS = 5


class EngineRecord:
    """An engine from its start to its burial."""

    def __init__(self, born_s: float) -> None:
        self.process: EngineHandle
        self.born_s = born_s
        """when it was started, by the loop's clock"""
        self.greeting: Hello | None = None
        self.session: str | None = None
        """the session to beat for; None before it has one, and after it lost one"""
        self.going = asyncio.Event()
        """it was told to go"""
        self.leaving = asyncio.Event()
        """it takes no more jobs, by its own wish or by ours; its place is free"""
        self.buried: asyncio.Task[None]
        """its last duty to us: done when its jobs are taken care of"""
        self.unfit: str | None = None
        self.blamed: tuple[Running, ...] = ()
        self.wish: str | None = None
        self._marked: set[tuple[str, int]] = set()
        self._late: dict[tuple[str, int], float] = {}
        self._asked: set[str] = set()
        self._taken: set[str] = set()
        self._ticks = 0
        self._quiet = 0

    # what is said -------------------------------------------------------------------------------

    def go(self) -> None:
        """Let it claim."""
        self.process.send(StartClaiming())
        self.going.set()

    def drain(self, grace_s: float) -> None:
        """Let it finish. One that was never told to go holds nothing and need not be asked."""
        self.leaving.set()
        if self.going.is_set():
            self.process.send(Drain(grace_s))
        else:
            self.kill(wish="its worker was stopped")

    def pulsed(self, message: Pulsed) -> None:
        """Pass on what the store said to its beat."""
        if not message.known and message.session == self.session:
            self.session = None  # it opens another and says so
        elif message.session == self.session:
            self._follow_cancels(set(message.cancelling))
        self.process.send(message)

    def _follow_cancels(self, asked: set[str]) -> None:
        """A job that was to stop, is no longer its engine's to stop, and runs: its grace is over and a sweep has
        ended it in the store. Its engine did not hear, or cannot act."""
        if not (asked or self._asked or self._taken):
            return
        running = {entry.job_id for entry in self.running()}
        self._taken = (self._taken | (self._asked - asked)) & running
        self._asked = asked & running

    def kill(self, *, wish: str | None = None, blamed: tuple[Running, ...] = ()) -> None:
        """SIGKILL. The first reason counts."""
        if self.wish is None and not self.blamed and not self.dead:
            self.wish, self.blamed = wish, blamed
        self.leaving.set()
        self.process.kill()

    # what is seen -------------------------------------------------------------------------------

    @property
    def dead(self) -> bool:
        """Its process has ended."""
        return self.process.ended.done()

    @property
    def killed(self) -> bool:
        """We killed it, or tried to."""
        return self.wish is not None or bool(self.blamed)

    def running(self) -> list[Running]:
        """What it runs now."""
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
            if (entry.job_id, entry.token) not in self._marked
        ]

    def marked(self, marks: list[ClaimReport]) -> None:
        """The store has them."""
        self._marked |= {(mark.job_id, mark.token) for mark in marks}

    def stuck(self, now_ms: int, loop_s: float) -> tuple[Running, ...]:
        """Jobs that are past their deadline, or were cancelled by force, and that it has had time to end.

        The time it has had is counted from when we first saw it, by a clock that stands still when the machine
        sleeps: after a sleep every deadline has passed, through no fault of the engine.
        """
        late = [entry for entry in self.running() if 0 < entry.deadline_ms < now_ms or entry.job_id in self._taken]
        seen = self._late
        self._late = {claim: seen.get(claim, loop_s) for entry in late if (claim := (entry.job_id, entry.token))}
        return tuple(entry for entry in late if loop_s - self._late[entry.job_id, entry.token] >= STUCK_S)

    def notice_silence(self) -> None:
        """Say once that its loop does not turn while it has work (an idle one need not): something blocks it, and what
        it promises its jobs cannot be kept from inside."""
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

    def death(self, status: int) -> Death | None:
        """Its end, for the burial; None if it never had a session."""
        session = self.session or (self.greeting.session if self.greeting else None)
        if session is None:
            return None
        return Death(session=session, status=status, running=tuple(self.running()), blamed=self.blamed, wish=self.wish)
