"""The child processes of an engine: for CPU-bound jobs, and for jobs that took their process down before.

We manage them ourselves, because a pool of the standard library fails every pending job when one process dies. Here a
segfault, a kill for lack of memory or an `os._exit` ends one job (`Crashed`) and no other.

    run = children.begin(job, context)      # takes an idle child, or starts one, or waits its turn
    run.stop("timed out")                   # asks: sets `stopping` there and cancels an `async def`
    run.kill()                              # ends the process, whatever it is busy with
    ending = await run.ending

A child is

    starting    the process loads the program, for the run that needed it
    idle        warm, waits for a job                       <- ChildReady; Ended
    busy        has one job                                 <- RunJob is sent
    ending      takes no more jobs; its process will end    <- pipe closed (recycled, one job only, close), or killed

and from any of them it may die. That ends its run: `Failed` while starting, if the program does not load; `Crashed`
when busy; `Halted` if it was asked to stop before. A job whose child was killed while it started, or died before it
took the job (`ChildStarted`), is not to blame: it goes to another child, once, and is then postponed. The next start
after a failed one waits a little longer each time. One idle child is kept warm; others end after some idle time.

`child_handle` is one child as the engine holds it, `child` runs in its process, `pipe` has the messages between them,
`process` starts and reaps it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque

import msgspec

from ..model import Job
from .child_handle import CLOSING, ChildHandle
from .endings import Ending, Halted
from .job_context import Context
from .pipe import ChildConfig
from .worker_options import WorkerOptions

#: a child is replaced after this number of jobs, in case they leak memory
RECYCLE_AFTER = 1_000
#: how long a child may be idle; one child is kept however long it is idle
IDLE_S = 60.0
#: how long the next start waits after one that failed; doubled each time
_START_AGAIN_S = 0.5
_START_AGAIN_CAP_S = 30.0


class ChildRun:
    """One job in a child. Made by `Children.begin`."""

    def __init__(self, children: Children, job: Job, context: Context, *, fresh: bool) -> None:
        self.job = job
        self.context = context
        self.fresh = fresh
        self.ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        """how it ended; never an exception. To cancel the wait is to kill the job"""
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """done when a child has taken it: the wait before that is not its own time. Never done if it ended before"""
        self.stopping: str | None = None
        self.passed_on = False
        """a child died before it took the job"""
        self.child: ChildHandle | None = None
        self._children = children
        self.ending.add_done_callback(self._given_up)

    @property
    def pid(self) -> int | None:
        """The process it runs in, or ran in; None while it has none."""
        return None if self.child is None else self.child.pid

    def stop(self, why: str) -> None:
        """Ask it to stop. It ends as `Halted`, unless it ends otherwise first. If it has not begun, it ends now."""
        if self.stopping is not None or self.ending.done():
            return
        self.stopping = why
        if self.child is None:
            self._children.withdraw(self, why)
        else:
            self.child.stop(self, why)

    def kill(self) -> None:
        """Kill its process and all that it started. `Halted` if it was asked to stop before, else `Crashed`."""
        if self.ending.done():
            return
        if self.child is None or self.child.state == "starting":
            self.stop("it was killed before it began")
        else:
            self.child.kill()

    def begin(self) -> None:
        """A child has it: it is responsible for what happens from now on."""
        if not self.begun.done():
            self.begun.set_result(None)

    def end(self, ending: Ending) -> None:
        if not self.ending.done():
            self.ending.set_result(ending)

    def _given_up(self, ending: asyncio.Future[Ending]) -> None:
        if not ending.cancelled():
            return
        if self.child is None:
            self._children.withdraw(self, CLOSING)
        else:
            self.child.drop(self)


class Children:
    """At most `most` processes that run the program of a worker, started when they are needed.

    Use it on one loop, in a thread that lives as long as the process: children die with the thread that started them.
    """

    def __init__(
        self,
        options: WorkerOptions,
        *,
        most: int,
        recycle_after: int = RECYCLE_AFTER,
        idle_s: float = IDLE_S,
    ) -> None:
        self.target = options.target
        self.recycle_after = recycle_after
        self._idle_s = idle_s
        self._options = options
        self._most = most
        self._waiting: deque[ChildRun] = deque()
        self._children: set[ChildHandle] = set()
        """all whose process may exist"""
        self._idle: list[ChildHandle] = []
        """the warmest last"""
        self._thinning_timer: asyncio.TimerHandle | None = None
        self._failed_starts = 0
        self._start_at = 0.0
        self._closed = False

    def begin(self, job: Job, context: Context, *, fresh: bool = False) -> ChildRun:
        """Run a job. Its progress, checkpoints and requests go to the link of `context`; follow-up jobs come back with
        its ending. `fresh`: in a new process that runs nothing else."""
        run = ChildRun(self, job, context, fresh=fresh)
        if self._closed:
            run.end(Halted(CLOSING))
            return run
        self._waiting.append(run)
        self._assign()
        return run

    async def close(self, grace_s: float = 0) -> None:
        """End all children: jobs are asked to stop, idle children leave their lifespan, and the rest is killed after
        the grace. No process is left afterwards. Safe to call twice."""
        self._closed = True
        if self._thinning_timer is not None:
            self._thinning_timer.cancel()
        for run in list(self._waiting):
            run.stop(CLOSING)
        for child in list(self._children):
            child.leave()
        lives = [child.life for child in self._children]
        try:
            if lives and grace_s > 0:
                await asyncio.wait(lives, timeout=grace_s)
        finally:
            for child in list(self._children):
                child.kill()
            await asyncio.gather(*lives, return_exceptions=True)

    # called by runs and children ----------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._closed

    def command(self, pipe_fd: int) -> list[str]:
        """The command line of a child."""
        config = ChildConfig(options=self._options, pipe_fd=pipe_fd, parent=os.getpid())
        return [sys.executable, "-m", "mainstay.worker.child", msgspec.json.encode(config).decode()]

    @property
    def start_wait_s(self) -> float:
        """How long the next start has to wait, because the last ones failed."""
        return max(0.0, self._start_at - asyncio.get_running_loop().time())

    def withdraw(self, run: ChildRun, why: str) -> None:
        """It was stopped before it had a child."""
        self._waiting.remove(run)
        run.end(Halted(why))

    def started(self) -> None:
        self._failed_starts = 0

    def start_failed(self) -> None:
        self._failed_starts += 1
        wait_s = min(_START_AGAIN_S * 2 ** min(self._failed_starts - 1, 10), _START_AGAIN_CAP_S)
        self._start_at = asyncio.get_running_loop().time() + wait_s

    def rest(self, child: ChildHandle) -> None:
        """It is idle."""
        self._idle.append(child)
        self._assign()
        if self._thinning_timer is None and len(self._idle) > 1:
            self._thinning_timer = asyncio.get_running_loop().call_later(self._idle_s, self._thin)

    def ends(self, child: ChildHandle) -> None:
        """It takes no more jobs; another may start."""
        if child in self._idle:
            self._idle.remove(child)
        self._assign()

    def again(self, run: ChildRun) -> None:
        """Its child died before it took the job."""
        run.child = None
        if self._closed:
            run.end(Halted(CLOSING))
        else:
            self._waiting.appendleft(run)

    def gone(self, child: ChildHandle) -> None:
        """Its process has ended."""
        self._children.discard(child)
        self.ends(child)

    # assignment ---------------------------------------------------------------------------------

    def _assign(self) -> None:
        while self._waiting and not self._closed:
            run = self._waiting[0]
            if self._idle and not run.fresh:
                self._waiting.popleft()
                self._idle.pop().take(run)
            elif sum(child.state != "ending" for child in self._children) < self._most:
                self._waiting.popleft()
                self._children.add(ChildHandle(self, run))
            elif self._idle:
                self._idle[0].leave()  # it makes room, and this is called again
                return
            else:
                return

    def _thin(self) -> None:
        """End children that were idle for long. The last one that became idle stays."""
        self._thinning_timer = None
        loop = asyncio.get_running_loop()
        while len(self._idle) > 1:
            wait_s = self._idle[0].idle_since_s + self._idle_s - loop.time()
            if wait_s > 0:
                self._thinning_timer = loop.call_later(wait_s, self._thin)
                return
            self._idle[0].leave()
