"""The child processes of an engine: for CPU-bound jobs, and for jobs that took their process down before.

We manage them ourselves, because a pool of the standard library fails every pending job when one process dies. Here a
segfault, a kill for lack of memory or an `os._exit` ends one job (`Crashed`) and no other.

    run = children.begin(job, context)      # takes an idle child, or starts one, or waits its turn
    run.stop("timed out")                   # asks: sets `stopping` there and cancels an `async def`
    run.kill()                              # ends the process, whatever it is busy with
    ending = await run.ending

A child is

    starting    the process loads the program, for the run that needed it
    idle        warm, waiting for a job                     <- Ready; Ended
    busy        has one job                                 <- Run is sent
    ending      takes no more jobs; its process is to go    <- hung up on (recycled, one job only, close), or killed

and from any of them it may die. That fails the run it had: `Failed` while starting (the program does not load here;
the next start waits a little longer each time), `Crashed` when busy, `Halted` if it was asked to stop before. A job
that was sent to a child which died before taking it (`Begun`) is innocent, and goes to another.

`child` is what runs in the process, `pipe` what the two say to each other, `process` how one is started and buried.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections import deque
from typing import Literal

import msgspec

from ..control import error_info
from ..model import ErrorInfo, Job, Progress
from .context import Context
from .endings import Crashed, Ending, Failed, Halted
from .pipe import (
    Answer,
    Ask,
    Begun,
    ChildConfig,
    Ended,
    FromChild,
    Pipe,
    Ready,
    Run,
    Stop,
    Told,
    Unfit,
    from_wire,
    refusal,
)
from .process import Process, in_words

log = logging.getLogger("mainstay.worker")

#: a child makes room for a new one after so many jobs, should they leak
RECYCLE_AFTER = 1_000
#: how long a child that was hung up on may take to leave its lifespan
_LEAVE_S = 10.0
#: how long to wait for the pipe of a dead child to close: something it forked may have left its group and hold it open
_LAST_WORDS_S = 0.5
#: a child whose pipe has closed is dying; one that closed it by mistake has to be helped
_DEAF_S = 1.0
#: how long the next start waits after one that failed; doubled each time
_START_AGAIN_S = 0.5
_START_AGAIN_CAP_S = 30.0

CLOSING = "its worker stops"

_decoder: msgspec.msgpack.Decoder[FromChild] = msgspec.msgpack.Decoder(FromChild)


class ChildRun:
    """One job in a child. Made by `Children.begin`."""

    def __init__(self, children: Children, job: Job, context: Context, *, fresh: bool) -> None:
        self.job = job
        self.context = context
        self.fresh = fresh
        self.ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        """how it ended; there once it has, and never an exception. To cancel the wait is to kill the job"""
        self.stopping: str | None = None
        self.passed_on = False
        """a child died before it took the job"""
        self.child: _Child | None = None
        self._children = children
        self.ending.add_done_callback(self._given_up)

    @property
    def pid(self) -> int | None:
        """The process it runs in, or ran in; None while it has none."""
        return None if self.child is None else self.child.pid

    def stop(self, why: str) -> None:
        """Ask it to stop. It ends as `Halted`, unless it comes to another end first. What has not begun ends now."""
        if self.stopping is not None or self.ending.done():
            return
        self.stopping = why
        if self.child is None:
            self._children.withdraw(self, why)
        else:
            self.child.stop(self, why)

    def kill(self) -> None:
        """End its process and what that has started. `Halted` if it was asked to stop before, else `Crashed`."""
        if self.ending.done():
            return
        if self.child is None or self.child.state == "starting":
            self.stop("it was killed before it began")
        else:
            self.child.kill()

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
    """At most `most` processes that run the program `target` (`module:app`), started when they are needed.

    Use it on one loop, in a thread that lives as long as the process: children die with the thread that started them.
    """

    def __init__(
        self,
        target: str,
        *,
        most: int,
        name: str,
        log_level: str = "info",
        json_logs: bool = False,
        recycle_after: int = RECYCLE_AFTER,
    ) -> None:
        self.target = target
        self.recycle_after = recycle_after
        self._name = name
        self._log_level = log_level
        self._json_logs = json_logs
        self._most = most
        self._waiting: deque[ChildRun] = deque()
        self._children: set[_Child] = set()
        """all whose process may be there"""
        self._idle: list[_Child] = []
        """the warmest last"""
        self._failed_starts = 0
        self._start_at = 0.0
        self._closed = False

    def begin(self, job: Job, context: Context, *, fresh: bool = False) -> ChildRun:
        """Run a job. Progress, checkpoints and questions of the job go to the link of `context`; follow-up jobs come
        back with its ending. `fresh`: in a new process that runs nothing else."""
        run = ChildRun(self, job, context, fresh=fresh)
        if self._closed:
            run.end(Halted(CLOSING))
            return run
        self._waiting.append(run)
        self._hand_out()
        return run

    async def close(self, grace_s: float = 0) -> None:
        """End all children: jobs are asked to stop, idle ones leave their lifespan, and what is left after the grace
        is killed. No process is there afterwards. Safe to call twice."""
        self._closed = True
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

    # told by runs and children ------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._closed

    def command(self, pipe_fd: int) -> list[str]:
        """How a child is started."""
        config = ChildConfig(
            target=self.target,
            name=self._name,
            pipe_fd=pipe_fd,
            parent=os.getpid(),
            log_level=self._log_level,
            json_logs=self._json_logs,
        )
        return [sys.executable, "-m", "mainstay.worker.child", msgspec.json.encode(config).decode()]

    @property
    def start_wait_s(self) -> float:
        """How long the next start has to wait, because the last ones failed."""
        return max(0.0, self._start_at - asyncio.get_running_loop().time())

    def withdraw(self, run: ChildRun, why: str) -> None:
        """It is stopped before it had a child."""
        self._waiting.remove(run)
        run.end(Halted(why))

    def started(self) -> None:
        self._failed_starts = 0

    def start_failed(self) -> None:
        self._failed_starts += 1
        wait_s = min(_START_AGAIN_S * 2 ** min(self._failed_starts - 1, 10), _START_AGAIN_CAP_S)
        self._start_at = asyncio.get_running_loop().time() + wait_s

    def rest(self, child: _Child) -> None:
        """It has nothing to do."""
        self._idle.append(child)
        self._hand_out()

    def ends(self, child: _Child) -> None:
        """It takes no more jobs; its place is free."""
        if child in self._idle:
            self._idle.remove(child)
        self._hand_out()

    def again(self, run: ChildRun) -> None:
        """Its child died before it took the job."""
        run.child = None
        if self._closed:
            run.end(Halted(CLOSING))
        else:
            self._waiting.appendleft(run)

    def gone(self, child: _Child) -> None:
        """Its process is no more."""
        self._children.discard(child)
        self.ends(child)

    # handing out --------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        while self._waiting and not self._closed:
            run = self._waiting[0]
            if self._idle and not run.fresh:
                self._waiting.popleft()
                self._idle.pop().take(run)
            elif sum(child.state != "ending" for child in self._children) < self._most:
                self._waiting.popleft()
                self._children.add(_Child(self, run))
            elif self._idle:
                self._idle[0].leave()  # makes room, and comes back here
                return
            else:
                return


class _Child:
    """One process and what it is doing. It is there for a run from the start."""

    def __init__(self, children: Children, run: ChildRun) -> None:
        self.state: Literal["starting", "idle", "busy", "ending"] = "starting"
        self._children = children
        self._run: ChildRun | None = run
        self._fresh = run.fresh
        self._ready = False
        self._begun = False
        self._served = 0
        self._killed_for: str | None = None
        self._process: Process | None = None
        self._pipe: Pipe | None = None
        self._questions: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        run.child = self
        self.life = asyncio.get_running_loop().create_task(self._live(children.start_wait_s))
        # not the end of `_live` itself, which a cancel may keep from ever being reached
        self.life.add_done_callback(self._died)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    # from birth to death ------------------------------------------------------------------------

    async def _live(self, wait_s: float) -> int:
        await asyncio.sleep(wait_s)
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = self._process = Process(self._children.command(theirs.fileno()), pass_fds=[theirs.fileno()])
            except BaseException:
                ours.close()
                raise
        try:
            pipe = self._pipe = await Pipe.over(ours, self._hear)
            pipe.ended.add_done_callback(self._deaf)
            status = await process.ended()
            await asyncio.wait([pipe.ended], timeout=_LAST_WORDS_S)
        finally:
            process.bury()
            if self._pipe is None:
                ours.close()
            else:
                self._pipe.abort()
        return status

    def _died(self, life: asyncio.Task[int]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if life.cancelled():
            how = "was called off"
        elif (error := life.exception()) is not None:
            how = f"could not be started: {error}"
        else:
            how = self._killed_for or in_words(life.result())
        idle = self.state == "idle"
        self.state = "ending"
        run, self._run = self._run, None
        if run is not None:
            self._bereave(run, how)
        elif idle:
            log.warning("idle child process died pid=%s: it %s", self.pid, how)
        self._children.gone(self)

    def _bereave(self, run: ChildRun, how: str) -> None:
        """What its death means for the run it had."""
        if run.ending.cancelled():
            return
        if run.stopping is not None:
            run.end(Halted(run.stopping))
        elif not self._ready:
            self._unfit(run, ErrorInfo(type="ChildUnfit", message=f"the process {self.pid or ''} {how}"))
        elif not self._begun and self._killed_for is None and not run.passed_on:
            run.passed_on = True
            self._children.again(run)
        else:
            log.warning("child process died pid=%s job_id=%s: it %s", self.pid, run.job.id, how)
            message = f"the process {self.pid} that ran it {how}"
            run.end(Crashed(ErrorInfo(type="WorkerCrashed", code="worker_crashed", message=message)))

    def _unfit(self, run: ChildRun, error: ErrorInfo) -> None:
        """It could not start: the job has failed, and so will the next unless something changes."""
        self._children.start_failed()
        target = self._children.target
        log.error("child process could not start target=%s: %s: %s", target, error.type, error.message)
        message = f"the child process for it could not start: {error.message}; see that {target} loads on its own"
        run.end(Failed(error=msgspec.structs.replace(error, code="child_unfit", message=message)))

    # what it is told ----------------------------------------------------------------------------

    def take(self, run: ChildRun) -> None:
        """Give it a job."""
        assert self._pipe is not None
        self.state = "busy"
        self._run = run
        self._begun = False
        run.child = self
        self._pipe.send(Run(run.job))

    def stop(self, run: ChildRun, why: str) -> None:
        """Ask its job to stop."""
        if self.state == "starting":
            # whether it is slow or hangs cannot be known; nothing is lost with it
            self._run = None
            run.end(Halted(why))
            self.kill()
        elif self._pipe is not None:
            self._pipe.send(Stop(why))

    def drop(self, run: ChildRun) -> None:
        """Nobody waits for this run any more."""
        if self._run is run:
            self.kill()

    def leave(self) -> None:
        """End it: in peace if it is idle, after its job if it is busy."""
        if self._run is not None:
            self._run.stop(CLOSING)
        elif self.state == "idle":
            self._hang_up()

    def kill(self, why: str = "was killed by its worker") -> None:
        """End its process now; the rest follows from its death."""
        self.state = "ending"
        self._killed_for = self._killed_for or why
        if self._process is None:
            self.life.cancel()
        else:
            self._process.kill()
        self._children.ends(self)

    def _hang_up(self) -> None:
        assert self._pipe is not None
        self.state = "ending"
        self._timer = asyncio.get_running_loop().call_later(_LEAVE_S, self.kill)
        self._pipe.close()
        self._children.ends(self)

    # what it says -------------------------------------------------------------------------------

    def _hear(self, data: bytes) -> None:
        try:
            message = _decoder.decode(data)
        except msgspec.MsgspecError as unreadable:
            self.kill()
            self._finish(Failed(error=error_info(unreadable)))
            return
        run = self._run
        if run is None:
            return
        match message:
            case Ready() if self.state == "starting":
                self._ready = True
                self._children.started()
                self.take(run)
            case Unfit(error):
                self._run = None
                self.state = "ending"
                self._unfit(run, error)
                self._children.ends(self)
            case Begun():
                self._begun = True
            case Told(progress):
                self._pass_on(run, progress)
            case Ask():
                task = asyncio.get_running_loop().create_task(self._answer(run, message))
                self._questions.add(task)
                task.add_done_callback(self._questions.discard)
            case Ended():
                self._finish(from_wire(message))

    def _pass_on(self, run: ChildRun, progress: Progress) -> None:
        try:
            run.context.link.progress(progress)
        except Exception:
            # nobody waits for an answer; that the job goes on matters more
            log.exception("progress could not be noted job_id=%s", run.job.id)

    def _finish(self, ending: Ending) -> None:
        """The job has come to its end; the child lives on, if it may."""
        run, self._run = self._run, None
        if run is None:
            return
        run.end(ending)
        self._served += 1
        if self.state != "busy":
            return
        if self._fresh or self._children.closed or self._served >= self._children.recycle_after:
            self._hang_up()
        else:
            self.state = "idle"
            self._children.rest(self)

    async def _answer(self, run: ChildRun, ask: Ask) -> None:
        link = run.context.link
        value = b""
        try:
            if ask.what == "save":
                await link.save(ask.data)
            elif ask.what == "extend":
                value = msgspec.msgpack.encode(await link.extend())
            else:
                value = msgspec.msgpack.encode(await link.inputs())
            answer = Answer(ask.number, value)
        except Exception as error:  # noqa: BLE001 - it is the job's, and raised there
            answer = Answer(ask.number, refusal=refusal(error))
        if self._run is run and self._pipe is not None:
            self._pipe.send(answer)

    def _deaf(self, _: object) -> None:
        if self._timer is None and not self.life.done():
            self._timer = asyncio.get_running_loop().call_later(_DEAF_S, self.kill, "had closed the pipe to its worker")
