"""One child process, as its engine holds it: what it is doing, what is said to it, what it says, and how it ends."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import TYPE_CHECKING, Literal

import msgspec

from ..control import error_info
from ..model import ErrorInfo, Progress
from .context import Stopped
from .endings import Crashed, Ending, Failed, Halted, PutOff
from .exits import in_words
from .pipe import (
    ChildAnswer,
    ChildProgress,
    ChildReady,
    ChildRequest,
    ChildStarted,
    ChildUnfit,
    Ended,
    FromChild,
    Pipe,
    RunJob,
    StopJob,
    from_wire,
    refusal,
)
from .process import Process

if TYPE_CHECKING:
    from .children import Children, ChildRun

log = logging.getLogger("mainstay.worker")

#: how long a child that was hung up on may take to leave its lifespan
_LEAVE_S = 10.0
#: how long to wait for the pipe of a dead child to close: something it forked may have left its group and hold it open
_LAST_WORDS_S = 0.5
#: a child whose pipe has closed is dying; one that closed it by mistake has to be helped
_DEAF_S = 1.0
#: how long a job is put off at least for which no child could be had
_PUT_OFF_S = 5.0
#: the machine is short of something: it may pass, and is nobody's fault
_SHORTAGES = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})

CLOSING = "its worker stops"

_decoder: msgspec.msgpack.Decoder[FromChild] = msgspec.msgpack.Decoder(FromChild)


class ChildHandle:
    """One process and what it is doing. It is there for a run from the start."""

    def __init__(self, children: Children, run: ChildRun) -> None:
        self.state: Literal["starting", "idle", "busy", "ending"] = "starting"
        self._children = children
        self._run: ChildRun | None = run
        self._fresh = run.fresh
        self.idle_since_s = 0.0
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
        passing = False
        if life.cancelled():
            how = "was called off"
        elif (error := life.exception()) is not None:
            how = f"could not be started: {error}"
            passing = isinstance(error, OSError) and error.errno in _SHORTAGES
        else:
            how = self._killed_for or in_words(life.result())
            passing = life.result() < 0 and self._killed_for is None
        idle = self.state == "idle"
        self.state = "ending"
        run, self._run = self._run, None
        if run is not None:
            self._bereave(run, how, passing=passing)
        elif idle:
            log.warning("idle child process died pid=%s: it %s", self.pid, how)
        self._children.gone(self)

    def _bereave(self, run: ChildRun, how: str, *, passing: bool) -> None:
        """What its death means for the run it had. `passing`: it was killed, or there was none to be had, which says
        nothing about the program."""
        if run.ending.cancelled():
            return
        if run.stopping is not None:
            run.end(Halted(run.stopping))
        elif not self._ready and passing:
            self._try_again(run, how)
        elif not self._ready:
            self._unfit(run, ErrorInfo(type="ChildUnfit", message=f"the process {self.pid or ''} {how}"))
        elif not self._begun and self._killed_for is None and not run.passed_on:
            run.passed_on = True
            self._children.again(run)
        else:
            log.warning("child process died pid=%s job_id=%s: it %s", self.pid, run.job.id, how)
            message = f"the process {self.pid} that ran it {how}"
            run.end(Crashed(ErrorInfo(type="WorkerCrashed", code="worker_crashed", message=message)))

    def _try_again(self, run: ChildRun, how: str) -> None:
        """It died before it could do anything, through no fault of the job: another child, and then another time."""
        self._children.start_failed()
        log.warning("child process died while it started pid=%s job_id=%s: it %s", self.pid, run.job.id, how)
        if run.passed_on:
            wait_s = max(_PUT_OFF_S, self._children.start_wait_s)
            run.end(PutOff(wait_s, f"no child process for it could start: the last one {how}"))
        else:
            run.passed_on = True
            self._children.again(run)

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
        self._pipe.send(RunJob(run.job))

    def stop(self, run: ChildRun, why: str) -> None:
        """Ask its job to stop."""
        if self.state == "starting":
            # whether it is slow or hangs cannot be known; nothing is lost with it
            self._run = None
            run.end(Halted(why))
            self.kill()
        elif self._pipe is not None:
            self._pipe.send(StopJob(why))

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
            case ChildReady() if self.state == "starting":
                self._ready = True
                self._children.started()
                self.take(run)
            case ChildUnfit(error):
                self._run = None
                self.state = "ending"
                self._unfit(run, error)
                self._children.ends(self)
            case ChildStarted():
                self._begun = True
                run.begin()
            case ChildProgress(progress):
                self._pass_on(run, progress)
            case ChildRequest():
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
            self.idle_since_s = asyncio.get_running_loop().time()
            self._children.rest(self)

    async def _answer(self, run: ChildRun, ask: ChildRequest) -> None:
        link = run.context.link
        value = b""
        try:
            if ask.what == "save":
                await link.save(ask.data)
            elif ask.what == "extend":
                value = msgspec.msgpack.encode(await link.extend())
            else:
                value = msgspec.msgpack.encode(await link.inputs())
            answer = ChildAnswer(ask.number, value)
        except (Exception, Stopped) as error:  # noqa: BLE001 - it is the job's, and raised there
            answer = ChildAnswer(ask.number, refusal=refusal(error))
        if self._run is run and self._pipe is not None:
            self._pipe.send(answer)

    def _deaf(self, _: object) -> None:
        if self._timer is None and not self.life.done():
            self._timer = asyncio.get_running_loop().call_later(_DEAF_S, self.kill, "had closed the pipe to its worker")
