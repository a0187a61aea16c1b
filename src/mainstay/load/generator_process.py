"""One generator process, as the collecting process sees it: start, send commands, read its reports, end it.

Every request gets an answer or a `GeneratorLost` within a bounded time, whatever the process does: it ends, is stopped
by a signal, falls silent, sends garbage, or never finishes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from ..errors import MainstayError
from ..process_end import kill_process
from .engine.line_limiter import MOST_LINES, LineLimiter
from .engine.messages import LAST_ONCE_S, ONCE_S, FromGenerator, MessageReader, Quit, ToGenerator, WindowReport, framed

log = logging.getLogger("mainstay.load")

_PROGRAM = (sys.executable, "-m", "mainstay.load.engine.main")
#: makes a process print its traceback, and end
_PRINT_AND_END = signal.SIGUSR2
#: the last printed lines, and how many bytes of them, that an error quotes
_KEPT_LINES = 40
_QUOTED_BYTES = 3000
#: both streams of a process share one pipe, with output that bypasses Python
_MOST_LINES = 4 * MOST_LINES
_ENDLESS = "did not finish; does it wait for something that never comes?"

LineHandler: TypeAlias = Callable[[int, str], None]
"""takes the number of a process, and a line that it printed"""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a generator may take, in seconds."""

    begin_s: float = 300.0
    """to load the test, read its rows and look up its hosts"""
    once_s: float = ONCE_S
    """for each setup, teardown and provided state"""
    last_once_s: float = LAST_ONCE_S
    """the same for a teardown after the run was given up"""
    let_go_s: float = 5.0
    """to abort the work under way after the run was given up"""
    silent_s: float = 60.0
    """without a window; ten are due in each second of load"""
    stopped_s: float = 60.0
    """stopped by a signal"""
    overtime_s: float = 20.0
    """after its load and its drain: for the `on_stop` of users, and the last window"""
    leave_s: float = 5.0
    """to exit on request"""
    tell_s: float = 1.0
    """to print its traceback before it is killed"""
    last_words_s: float = 0.5
    """for its last output to arrive, if a child of it keeps the pipe open"""
    tick_s: float = 1.0
    """how often the process is checked"""


class GeneratorLost(MainstayError):
    """A generator process ended before it should. The windows that it had sent are kept."""

    code = "generator_lost"
    retryable = False


class GeneratorProcess:
    """One process and the connection to it."""

    def __init__(
        self,
        number: int,
        limits: Limits,
        on_line: LineHandler,
        *,
        environment: Mapping[str, str] = {},
        folder: str = "",
        program: Sequence[str] = _PROGRAM,
    ) -> None:
        self.number = number
        self._environment = environment
        self._folder = folder
        self._program = program
        self._limits = limits
        self._printed = PrintedLines(lambda line: on_line(number, line))
        self._process: asyncio.subprocess.Process
        self._exited: asyncio.Future[int] | None = None
        """the exit of the process; None before its start"""
        self._writer: asyncio.StreamWriter | None = None
        self._reader: MessageReader
        self._doing = "starting"
        self._left_s = math.inf
        """until the pending answer is overdue"""
        self._loss: GeneratorLost | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        try:
            # a pipe of our own: asyncio's would delay the exit of the process until the pipe is closed everywhere, and
            # a child of the process may hold it forever
            await self._printed.listen(reading)
            self._process = await asyncio.create_subprocess_exec(
                *(*self._program, str(theirs.fileno()), str(os.getpid())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                pass_fds=(theirs.fileno(),),
                env=_environment(self._environment),
                cwd=self._folder or None,
            )
            self._exited = asyncio.ensure_future(self._process.wait())
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(writing)
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=1 << 22)
        self._reader = MessageReader(reader, FromGenerator)

    def send(self, message: ToGenerator) -> None:
        if self._writer is not None:
            with contextlib.suppress(ConnectionError, RuntimeError):
                self._writer.write(framed(message))

    async def ask(
        self,
        message: ToGenerator,
        doing: str,
        *,
        within_s: float,
        on_window: Callable[[WindowReport], None] | None = None,
    ) -> FromGenerator:
        """Send a message and wait for its answer; `on_window` takes the windows that come before it. `doing`: what the
        process does in that time, for the error if it is lost."""
        if self._loss is not None:
            raise self._loss
        self._doing = doing
        self._left_s = within_s
        self.send(message)
        while True:
            answer = await self._receive(windows_due=on_window is not None)
            if not isinstance(answer, WindowReport):
                return answer
            if self._left_s <= 0:
                raise await self._gave_up(_ENDLESS)
            if on_window is not None:
                on_window(answer)

    def hurry(self, within_s: float) -> None:
        """The pending answer has to arrive within this time."""
        self._left_s = min(self._left_s, within_s)

    async def _receive(self, *, windows_due: bool) -> FromGenerator:
        reading: asyncio.Future[Any] = asyncio.ensure_future(self._reader.read())
        try:
            await self._wait_for(reading, windows_due=windows_due)
            message: FromGenerator | None = reading.result() if reading.done() else None
        except msgspec.MsgspecError as error:
            raise await self._gave_up(f"sent a message that cannot be read ({error})") from None
        finally:
            reading.cancel()
        if message is None:
            raise await self._gone()
        return message

    async def _wait_for(self, reading: asyncio.Future[Any], *, windows_due: bool) -> None:
        """Wait for a message, or for the end of the process. Only time in which this process itself was awake counts:
        all of them can be stopped for a while and continued."""
        assert self._exited is not None
        loop, limits = asyncio.get_running_loop(), self._limits
        silent_s = stopped_s = 0.0
        while True:
            before = loop.time()
            await asyncio.wait({reading, self._exited}, timeout=limits.tick_s, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                self._left_s -= min(limits.tick_s, loop.time() - before)
                return
            if self._exited.done():
                # its last message may be on its way; a fork of it may keep the connection open
                await asyncio.wait({reading}, timeout=limits.last_words_s)
                return
            passed_s = min(limits.tick_s, loop.time() - before)
            self._left_s -= passed_s
            silent_s = silent_s + passed_s if windows_due else 0.0
            stopped_s = stopped_s + passed_s if self._is_stopped() else 0.0
            if stopped_s >= limits.stopped_s:
                raise await self._gave_up(f"was stopped by a signal for {limits.stopped_s:g} s")
            if silent_s >= limits.silent_s:
                raise await self._gave_up(
                    f"sent nothing for {limits.silent_s:g} s; does one of its steps block the event loop?"
                )
            if self._left_s <= 0:
                raise await self._gave_up(_ENDLESS)

    def _is_stopped(self) -> bool:
        """Whether it is stopped, by SIGSTOP for example."""
        if sys.platform == "darwin" or not hasattr(os, "waitid"):
            return False
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        return False

    async def _gone(self) -> GeneratorLost:
        """It closed the connection, and should have exited, too."""
        assert self._exited is not None
        await asyncio.wait({self._exited}, timeout=self._limits.leave_s)
        if not self._exited.done():
            return await self._gave_up("closed its connection to the run")
        return await self._lost(f"ended with {_ended(self._exited.result())}")

    async def _gave_up(self, why: str) -> GeneratorLost:
        """End it: first with a traceback, then by force."""
        assert self._exited is not None
        for number, seconds in ((_PRINT_AND_END, self._limits.tell_s), (signal.SIGKILL, self._limits.leave_s)):
            if not self._exited.done():
                self._send(number)
                await asyncio.wait({self._exited}, timeout=seconds)
        return await self._lost(why)

    async def _lost(self, how: str) -> GeneratorLost:
        await self._printed.wait_end(self._limits.last_words_s)
        printed = self._printed.last() or "nothing"
        self._loss = GeneratorLost(f"generator {self.number} {how}, while {self._doing}; its last output: {printed}")
        return self._loss

    async def ended(self) -> None:
        """Wait until the process has ended. It must have been started."""
        assert self._exited is not None
        await asyncio.wait({self._exited})

    def kill(self) -> None:
        """End it by force."""
        if self._exited is not None and not self._exited.done():
            self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def stop(self) -> None:
        """Ask it to exit; kill it if it does not."""
        try:
            if self._exited is not None:
                self.send(Quit())
                await asyncio.wait({self._exited}, timeout=self._limits.leave_s)
                if not self._exited.done():
                    self._send(signal.SIGKILL)
                    await asyncio.wait({self._exited}, timeout=self._limits.leave_s)
                await self._printed.wait_end(self._limits.last_words_s)
        finally:
            # also if this is cancelled
            if self._writer is not None:
                self._writer.close()
            self._printed.close()
            if self._exited is not None and not self._exited.done():
                await kill_process(self._process, within_s=self._limits.leave_s)


class PrintedLines(asyncio.Protocol):
    """The output of a process: passed on line by line, within bounds. The last lines are kept for errors."""

    def __init__(self, pass_on: Callable[[str], None]) -> None:
        self._pass_on = pass_on
        self._limiter = LineLimiter(self._line, most=_MOST_LINES)
        self._last: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self._rest = b""
        self._ended = asyncio.Event()
        self._transport: asyncio.BaseTransport | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def listen(self, number: int) -> None:
        """Read from this end of a pipe, which is closed with this object."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(lambda: self, open(number, "rb", buffering=0))  # noqa: ASYNC230, SIM115 - it is open already

    def data_received(self, data: bytes) -> None:
        *lines, rest = (self._rest + data[-_QUOTED_BYTES * 4 :]).split(b"\n")
        self._last.extend(lines[-_KEPT_LINES:])
        self._rest = rest[-_QUOTED_BYTES:]
        self._limiter.feed(data)
        if self._limiter.dropped and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(1.0, self._tick)

    def connection_lost(self, _: Exception | None) -> None:
        self._limiter.end()
        self._ended.set()

    async def wait_end(self, within_s: float) -> None:
        """Wait for the rest of the output of a process that has exited."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._ended.wait()

    def last(self) -> str:
        text = b"\n".join([*self._last, self._rest])[-_QUOTED_BYTES:]
        return text.decode(errors="replace").strip()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.close()

    def _tick(self) -> None:
        self._timer = None
        self._limiter.tick()

    def _line(self, line: bytes) -> None:
        try:
            self._pass_on(line.decode(errors="replace"))
        except Exception:
            log.exception("a line that a generator printed could not be shown; the run goes on")


def _environment(added: Mapping[str, str]) -> dict[str, str]:
    # numpy's algebra starts a thread for each core when it is imported, and a generator needs none
    return {"OPENBLAS_NUM_THREADS": "1", **os.environ, **added}


def _ended(code: int) -> str:
    return f"code {code}" if code >= 0 else f"signal {-code}"
