"""One child process as its engine holds it: its state, the messages to and from it, and its end."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import TYPE_CHECKING, Literal

import msgspec

from ..control import error_info
from ..model import ErrorInfo, Progress
from .endings import Crashed, Ending, Failed, Halted, PutOff
from .exits import describe_exit
from .job_context import Stopped
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

#: how long a child may take to leave its lifespan once its pipe is closed
_LEAVE_S = 10.0
#: how long to wait for the pipe of a dead child to close: a process that it forked may hold it open
_LAST_WORDS_S = 0.5
#: a child that closed its pipe is dying; if it closed it by mistake, it is killed after this time
_CLOSED_PIPE_S = 1.0
#: how long a job is postponed, at least, when no child could start for it
_POSTPONE_S = 5.0
#: the machine is short of something: it may pass
_SHORTAGES = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})

CLOSING = "its worker stops"

_decoder: msgspec.msgpack.Decoder[FromChild] = msgspec.msgpack.Decoder(FromChild)


class ChildHandle:
    """One process and its state. It is started for a run."""

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
        self._requests: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        run.child = self
        self.life = asyncio.get_running_loop().create_task(self._live(children.start_wait_s))
        # not the end of `_live` itself, which a cancel may keep from ever being reached
        self.life.add_done_callback(self._ended)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    # from start to end --------------------------------------------------------------------------

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
            pipe = self._pipe = await Pipe.over(ours, self._receive)
            pipe.ended.add_done_callback(self._pipe_closed)
            status = await process.ended()
            await asyncio.wait([pipe.ended], timeout=_LAST_WORDS_S)
        finally:
            process.reap()
            if self._pipe is None:
                ours.close()
            else:
                self._pipe.abort()
        return status

    def _ended(self, life: asyncio.Task[int]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        passing = False
        if life.cancelled():
            exit_text = "was called off"
        elif (error := life.exception()) is not None:
            exit_text = f"could not be started: {error}"
            passing = isinstance(error, OSError) and error.errno in _SHORTAGES
        else:
            exit_text = self._killed_for or describe_exit(life.result())
            passing = life.result() < 0 and self._killed_for is None
        idle = self.state == "idle"
        self.state = "ending"
        run, self._run = self._run, None
        if run is not None:
            self._end_run(run, exit_text, passing=passing)
        elif idle:
            log.warning("idle child process died pid=%s: it %s", self.pid, exit_text)
        self._children.gone(self)

    def _end_run(self, run: ChildRun, exit_text: str, *, passing: bool) -> None:
        """End or repeat the run of a process that has ended. `passing`: it was killed, or could not be started for lack
        of resources, which says nothing about the program."""
        if run.ending.cancelled():
            return
        if run.stopping is not None:
            run.end(Halted(run.stopping))
        elif not self._ready and passing:
            self._try_again(run, exit_text)
        elif not self._ready:
            self._unfit(run, ErrorInfo(type="ChildUnfit", message=f"the process {self.pid or ''} {exit_text}"))
        elif not self._begun and self._killed_for is None and not run.passed_on:
            run.passed_on = True
            self._children.again(run)
        else:
            log.warning("child process died pid=%s job_id=%s: it %s", self.pid, run.job.id, exit_text)
            message = f"the process {self.pid} that ran it {exit_text}"
            run.end(Crashed(ErrorInfo(type="WorkerCrashed", code="worker_crashed", message=message)))

    def _try_again(self, run: ChildRun, exit_text: str) -> None:
        """It died before it could begin, through no fault of the job: try another child, and then postpone the job."""
        self._children.start_failed()
        log.warning("child process died while it started pid=%s job_id=%s: it %s", self.pid, run.job.id, exit_text)
        if run.passed_on:
            wait_s = max(_POSTPONE_S, self._children.start_wait_s)
            run.end(PutOff(wait_s, f"no child process for it could start: the last one {exit_text}"))
        else:
            run.passed_on = True
            self._children.again(run)

    def _unfit(self, run: ChildRun, error: ErrorInfo) -> None:
        """It could not start: the job has failed, and so will the next one unless something changes."""
        self._children.start_failed()
        target = self._children.target
        log.error("child process could not start target=%s: %s: %s", target, error.type, error.message)
        message = f"the child process for it could not start: {error.message}; see that {target} loads on its own"
        run.end(Failed(error=msgspec.structs.replace(error, code="child_unfit", message=message)))

    # messages to it -----------------------------------------------------------------------------

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
            # it may be slow or hang; nothing is lost with it
            self._run = None
            run.end(Halted(why))
            self.kill()
        elif self._pipe is not None:
            self._pipe.send(StopJob(why))

    def drop(self, run: ChildRun) -> None:
        """The wait for this run was cancelled."""
        if self._run is run:
            self.kill()

    def leave(self) -> None:
        """End it: at once if it is idle, after its job if it is busy."""
        if self._run is not None:
            self._run.stop(CLOSING)
        elif self.state == "idle":
            self._close_pipe()

    def kill(self, why: str = "was killed by its worker") -> None:
        """End its process now; `_ended` does the rest."""
        self.state = "ending"
        self._killed_for = self._killed_for or why
        if self._process is None:
            self.life.cancel()
        else:
            self._process.kill()
        self._children.ends(self)

    def _close_pipe(self) -> None:
        assert self._pipe is not None
        self.state = "ending"
        self._timer = asyncio.get_running_loop().call_later(_LEAVE_S, self.kill)
        self._pipe.close()
        self._children.ends(self)

    # messages from it ---------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
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
                self._requests.add(task)
                task.add_done_callback(self._requests.discard)
            case Ended():
                self._finish(from_wire(message))

    def _pass_on(self, run: ChildRun, progress: Progress) -> None:
        try:
            run.context.link.progress(progress)
        except Exception:
            # nothing waits for an answer, and the job must go on
            log.exception("progress could not be noted job_id=%s", run.job.id)

    def _finish(self, ending: Ending) -> None:
        """The job has ended; the child goes on, if it may."""
        run, self._run = self._run, None
        if run is None:
            return
        run.end(ending)
        self._served += 1
        if self.state != "busy":
            return
        if self._fresh or self._children.closed or self._served >= self._children.recycle_after:
            self._close_pipe()
        else:
            self.state = "idle"
            self.idle_since_s = asyncio.get_running_loop().time()
            self._children.rest(self)

    async def _answer(self, run: ChildRun, request: ChildRequest) -> None:
        link = run.context.link
        value = b""
        try:
            if request.what == "save":
                await link.save(request.data)
            elif request.what == "extend":
                value = msgspec.msgpack.encode(await link.extend())
            else:
                value = msgspec.msgpack.encode(await link.inputs())
            answer = ChildAnswer(request.number, value)
        except (Exception, Stopped) as error:  # noqa: BLE001 - it is raised in the job
            answer = ChildAnswer(request.number, refusal=refusal(error))
        if self._run is run and self._pipe is not None:
            self._pipe.send(answer)

    def _pipe_closed(self, _: object) -> None:
        if self._timer is None and not self.life.done():
            self._timer = asyncio.get_running_loop().call_later(
                _CLOSED_PIPE_S, self.kill, "had closed the pipe to its worker"
            )
