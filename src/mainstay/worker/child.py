"""A child process of an engine: `python -m mainstay.worker.child`. `children` is the engine's side of it.

It loads the program, enters its lifespan and runs one job at a time: an `async def` on the loop of the main thread, a
plain function in another thread, so that a request to stop is received while either runs. It has no session and no
store: progress, checkpoints and results go over the pipe. It ends when the engine closes the pipe, and dies with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import itertools
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec

from ..control import Extension, checked_progress, error_info
from ..errors import MainstayError
from ..model import Job, Progress
from ..parent import die_with_parent
from . import logs
from .attempt import attempt
from .endings import Ending, Failed, Halted
from .exits import leave_at_once
from .job_context import Context, Input
from .output_capture import OutputCapture, capture_output
from .pipe import (
    ChildAnswer,
    ChildConfig,
    ChildProgress,
    ChildReady,
    ChildRequest,
    ChildStarted,
    ChildUnfit,
    Pipe,
    RunJob,
    StopJob,
    ToChild,
    frame,
    refused,
    to_wire,
)
from .program import Program, load_for
from .spawn import leave_stopping_to_the_supervisor

#: progress is passed on at once, but not more often than this
_SEND_EVERY_S = 0.05

_decoder: msgspec.msgpack.Decoder[ToChild] = msgspec.msgpack.Decoder(ToChild)


class PipeLink:
    """The `Link` of a job in a child: everything goes to its engine, until the job has ended."""

    def __init__(self, pipe: Pipe, numbers: itertools.count[int]) -> None:
        self.loop = asyncio.get_running_loop()
        self._pipe = pipe
        self._numbers = numbers
        self._pending: dict[int, asyncio.Future[bytes]] = {}
        self._latest: Progress | None = None
        self._sent: Progress | None = None
        self._sent_s = 0.0
        self._due = False
        self._closed = False

    def progress(self, progress: Progress) -> None:
        self._latest = checked_progress(progress)
        if self._due or self._closed:
            return
        # set before the send is scheduled, cleared before `_latest` is read: the last progress is never lost
        self._due = True
        self.loop.call_soon_threadsafe(self._send_soon)

    async def save(self, checkpoint: bytes) -> None:
        await self._request("save", checkpoint)

    async def extend(self) -> Extension:
        return msgspec.msgpack.decode(await self._request("extend"), type=Extension)

    async def inputs(self) -> list[Input]:
        return msgspec.msgpack.decode(await self._request("inputs"), type=list[Input])

    def take_cores(self, cores: int) -> None:
        raise MainstayError(f"{cores} cores were asked for in a child process; only work that supervises may hold some")

    def answer(self, answer: ChildAnswer) -> None:
        waiting = self._pending.pop(answer.number, None)
        if waiting is None or waiting.done():
            return
        if answer.refusal is None:
            waiting.set_result(answer.value)
        else:
            waiting.set_exception(refused(answer.refusal))

    def close(self) -> None:
        """Send the last progress, and nothing after it."""
        self._send_latest()
        self._closed = True
        for waiting in self._pending.values():
            waiting.cancel()

    async def _request(self, what: Literal["save", "extend", "inputs"], data: bytes = b"") -> bytes:
        if self._closed:
            raise MainstayError("the job has ended; it can no longer save or ask for anything")
        self._send_latest()  # more time is earned by progress, so the engine must have it first
        number = next(self._numbers)
        waiting: asyncio.Future[bytes] = self.loop.create_future()
        self._pending[number] = waiting
        self._pipe.send(ChildRequest(number, what, data))
        return await waiting

    def _send_soon(self) -> None:
        wait_s = self._sent_s + _SEND_EVERY_S - self.loop.time()
        if wait_s > 0:
            self.loop.call_later(wait_s, self._send_latest)
        else:
            self._send_latest()

    def _send_latest(self) -> None:
        self._due = False
        latest = self._latest
        if latest is None or latest is self._sent or self._closed:
            return
        self._sent = latest
        self._sent_s = self.loop.time()
        self._pipe.send(ChildProgress(latest))


class Child:
    """Serves the jobs that come over the pipe, one at a time."""

    def __init__(self, program: Program, *, output: OutputCapture | None = None) -> None:
        self._program = program
        self._output = output
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="mainstay-job")
        self._numbers = itertools.count(1)
        self._pipe: Pipe
        self._link: PipeLink | None = None
        self._context: Context
        self._task: asyncio.Task[Ending]
        self._is_async = False

    async def serve(self, sock: socket.socket) -> None:
        """Until the engine closes the pipe. During a job, that ends the process."""
        self._pipe = await Pipe.over(sock, self._receive)
        self._pipe.send(ChildReady())
        await self._pipe.ended
        if self._link is not None:
            os._exit(1)
        self._threads.shutdown()

    def _receive(self, data: bytes) -> None:
        match _decoder.decode(data):
            case RunJob(job):
                self._begin(job)
            case StopJob(why) if self._link is not None:
                self._context.stop(why)
                # a thread cannot be cancelled; the job has to check `stopping`
                if self._is_async:
                    self._task.cancel()
            case ChildAnswer() as answer if self._link is not None:
                self._link.answer(answer)

    def _begin(self, job: Job) -> None:
        self._pipe.send(ChildStarted())
        self._link = PipeLink(self._pipe, self._numbers)
        self._context = Context(job, self._link, pack=self._program.pack, unpack=self._program.unpack)
        if self._output is not None:
            self._output.alone = self._context
        try:
            work = self._program.work(job.kind, job.name)
        except MainstayError as error:  # the engine has this task: the program differs between processes
            self._send_ending(Failed(error=error_info(error)))
            return
        self._is_async = work.is_async
        self._task = asyncio.create_task(attempt(self._program, work, self._context, self._threads))
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[Ending]) -> None:
        if task.cancelled():  # before it had taken its first step
            self._send_ending(Halted(self._context.stopping or "cancelled"))
        elif (error := task.exception()) is not None:
            self._send_ending(Failed(error=error_info(error)))
        else:
            self._send_ending(task.result())

    def _send_ending(self, ending: Ending) -> None:
        assert self._link is not None
        self._link.close()
        self._link = None
        if self._output is not None:
            self._output.alone = None
        try:
            data = frame(to_wire(ending, self._program.settings))
        except Exception as error:  # noqa: BLE001 - whatever cannot be sent, the job has to end
            data = frame(to_wire(Failed(error=error_info(error)), self._program.settings))
        self._pipe.send_frame(data)


def main(argument: str) -> int:
    """Run a child to its end."""
    leave_stopping_to_the_supervisor()
    config = msgspec.json.decode(argument, type=ChildConfig)
    die_with_parent(config.parent)
    output = capture_output(config.options.output, echo=config.options.echo)
    logs.configure(config.options.log_level, as_json=config.options.json_logs)
    _prefer_in_oom_kill()
    faulthandler.enable()  # after a memory fault, stderr shows the line of Python
    sock = socket.socket(fileno=config.pipe_fd)
    sock.set_inheritable(False)
    started = False

    async def run(program: Program) -> None:
        nonlocal started
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(program.close)
            await stack.enter_async_context(program.lifespan())
            started = True
            await Child(program, output=output).serve(sock)

    with asyncio.Runner() as runner:
        try:
            # before there is a loop: a module may run its own while it is imported
            program = load_for(config.options)
            runner.run(run(program))
        except BaseException as error:
            if started and isinstance(error, SystemExit | KeyboardInterrupt):
                leave_at_once(error)
            if started:
                raise
            _send_unfit(sock, error)
            return 1
    return 0


def _prefer_in_oom_kill() -> None:
    """When memory runs out, the kernel shall kill the process of one job, not its engine."""
    score = Path("/proc/self/oom_score_adj")
    with contextlib.suppress(OSError):
        score.write_text(str(min(int(score.read_text()) + 500, 1000)))


def _send_unfit(sock: socket.socket, error: BaseException) -> None:
    with contextlib.suppress(OSError), sock:
        sock.setblocking(True)
        sock.sendall(frame(ChildUnfit(error_info(error))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
