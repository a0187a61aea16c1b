"""One generator process, seen from the one that collects: started, talked to, listened to, and ended.

Whatever it does, whoever waits for it gets an answer or a `GeneratorLost` within a bounded time: when it ends, when it
is stopped, when it says nothing, or nothing that can be understood, or never comes to an end of what it was told.
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
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from ..errors import MainstayError
from .engine.line_limiter import MOST_LINES, LineLimiter
from .engine.messages import LAST_ONCE_S, ONCE_S, FromGenerator, MessageReader, Quit, ToGenerator, WindowReport, framed

log = logging.getLogger("mainstay.load")

_PROGRAM = (sys.executable, "-m", "mainstay.load.engine.main")
#: has a process say where it is, and end
_TELL_AND_END = signal.SIGUSR2
#: lines that are kept for who asks what it said last, and how much of them is told
_KEPT_LINES = 40
_TOLD = 3000
#: both streams of a process come on one line, with what is written past Python
_MOST_LINES = 4 * MOST_LINES
_ENDLESS = "did not come to its end; does it wait for something that never comes?"

LineHandler: TypeAlias = Callable[[int, str], None]
"""takes a line that a process printed: its number, the line"""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a generator may take, in seconds."""

    begin_s: float = 300.0
    """to load the test, read its rows and look up its hosts"""
    once_s: float = ONCE_S
    """for each thing that is done once: a setup, a teardown, a state that is provided"""
    last_once_s: float = LAST_ONCE_S
    """the same for a teardown, when the run was given up"""
    let_go_s: float = 5.0
    """to let go of what is under way, when the run was given up"""
    silent_s: float = 60.0
    """without a window, of which ten are due each second of load"""
    stopped_s: float = 60.0
    """to be stopped by a signal, whatever it does"""
    overtime_s: float = 20.0
    """to go on after its load and its drain are over: users say goodbye, the last window is made"""
    leave_s: float = 5.0
    """to leave when it is told to"""
    tell_s: float = 1.0
    """to say where it is, when it is given up"""
    last_words_s: float = 0.5
    """for what it said before it ended to arrive, if what it has started holds the line open"""
    tick_s: float = 1.0
    """how often it is looked at"""


class GeneratorLost(MainstayError):
    """A generator process ended before it was told to. What it had measured and sent is kept."""

    code = "generator_lost"
    retryable = False


class GeneratorProcess:
    """One process and the line to it."""

    def __init__(self, number: int, limits: Limits, on_line: LineHandler, *, program: Sequence[str] = _PROGRAM) -> None:
        self.number = number
        self._program = program
        self._limits = limits
        self._words = PrintedLines(lambda line: on_line(number, line))
        self._process: asyncio.subprocess.Process
        self._exited: asyncio.Future[int] | None = None
        """of the process; None before it is started"""
        self._writer: asyncio.StreamWriter | None = None
        self._reader: MessageReader
        self._doing = "starting"
        self._left_s = math.inf
        """until the answer that is waited for is overdue"""
        self._loss: GeneratorLost | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        try:
            # a pipe of our own: one of asyncio's would have the process's end wait until nobody holds it any more, and
            # what the process itself has started may hold it for ever
            await self._words.listen(reading)
            self._process = await asyncio.create_subprocess_exec(
                *(*self._program, str(theirs.fileno()), str(os.getpid())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                pass_fds=(theirs.fileno(),),
                env=_environment(),
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

    def say(self, message: ToGenerator) -> None:
        if self._writer is not None:
            with contextlib.suppress(ConnectionError, RuntimeError):
                self._writer.write(framed(message))

    async def ask(
        self,
        message: ToGenerator,
        doing: str,
        *,
        within_s: float,
        on_seen: Callable[[WindowReport], None] | None = None,
    ) -> FromGenerator:
        """Say something and wait for the answer; windows come before it, if somebody takes them. `doing`: what it
        does meanwhile, for who is told that it was lost."""
        if self._loss is not None:
            raise self._loss
        self._doing = doing
        self._left_s = within_s
        self.say(message)
        while True:
            heard = await self._heard(windows_due=on_seen is not None)
            if not isinstance(heard, WindowReport):
                return heard
            if self._left_s <= 0:
                raise await self._gave_up(_ENDLESS)
            if on_seen is not None:
                on_seen(heard)

    def hurry(self, within_s: float) -> None:
        """What is waited for has to come within this time."""
        self._left_s = min(self._left_s, within_s)

    async def _heard(self, *, windows_due: bool) -> FromGenerator:
        hearing: asyncio.Future[Any] = asyncio.ensure_future(self._reader.read())
        try:
            await self._wait_for(hearing, windows_due=windows_due)
            heard: FromGenerator | None = hearing.result() if hearing.done() else None
        except msgspec.MsgspecError as error:
            raise await self._gave_up(f"said what cannot be understood ({error})") from None
        finally:
            hearing.cancel()
        if heard is None:
            raise await self._gone()
        return heard

    async def _wait_for(self, hearing: asyncio.Future[Any], *, windows_due: bool) -> None:
        """Until there is something, or nothing can come any more. Only time counts in which this process itself was
        awake: who stops all of them for a while and has them go on finds them going on."""
        assert self._exited is not None
        loop, limits = asyncio.get_running_loop(), self._limits
        silent_s = stopped_s = 0.0
        while True:
            before = loop.time()
            await asyncio.wait({hearing, self._exited}, timeout=limits.tick_s, return_when=asyncio.FIRST_COMPLETED)
            if hearing.done():
                self._left_s -= min(limits.tick_s, loop.time() - before)
                return
            if self._exited.done():
                # what it said last may be on its way. The line may stay open: what it has forked may hold it
                await asyncio.wait({hearing}, timeout=limits.last_words_s)
                return
            passed_s = min(limits.tick_s, loop.time() - before)
            self._left_s -= passed_s
            silent_s = silent_s + passed_s if windows_due else 0.0
            stopped_s = stopped_s + passed_s if self._is_stopped() else 0.0
            if stopped_s >= limits.stopped_s:
                raise await self._gave_up(f"was stopped by a signal for {limits.stopped_s:g} s")
            if silent_s >= limits.silent_s:
                raise await self._gave_up(f"said nothing for {limits.silent_s:g} s; does one of its steps block it?")
            if self._left_s <= 0:
                raise await self._gave_up(_ENDLESS)

    def _is_stopped(self) -> bool:
        """By SIGSTOP, say."""
        if sys.platform == "darwin" or not hasattr(os, "waitid"):
            return False
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        return False

    async def _gone(self) -> GeneratorLost:
        """It has hung up, and should have ended as well."""
        assert self._exited is not None
        await asyncio.wait({self._exited}, timeout=self._limits.leave_s)
        if not self._exited.done():
            return await self._gave_up("closed the line to the run")
        return await self._lost(f"ended with {_ended(self._exited.result())}")

    async def _gave_up(self, why: str) -> GeneratorLost:
        """End it: first so that it says where it is, then in any case."""
        assert self._exited is not None
        for number, seconds in ((_TELL_AND_END, self._limits.tell_s), (signal.SIGKILL, self._limits.leave_s)):
            if not self._exited.done():
                self._send(number)
                await asyncio.wait({self._exited}, timeout=seconds)
        return await self._lost(why)

    async def _lost(self, how: str) -> GeneratorLost:
        await self._words.over(self._limits.last_words_s)
        said = self._words.last() or "nothing"
        self._loss = GeneratorLost(f"generator {self.number} {how}, while {self._doing}; it said last: {said}")
        return self._loss

    def kill(self) -> None:
        """Whatever it does."""
        if self._exited is not None and not self._exited.done():
            self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def stop(self) -> None:
        """Have it leave; end it, if it does not."""
        try:
            if self._exited is not None:
                self.say(Quit())
                await asyncio.wait({self._exited}, timeout=self._limits.leave_s)
                if not self._exited.done():
                    self._send(signal.SIGKILL)
                    await asyncio.wait({self._exited}, timeout=self._limits.leave_s)
                await self._words.over(self._limits.last_words_s)
        finally:
            # also if nobody waits for it any longer
            self.kill()
            if self._writer is not None:
                self._writer.close()
            self._words.close()


class PrintedLines(asyncio.Protocol):
    """What a process prints: passed on line by line, within bounds; the last lines are kept in any case."""

    def __init__(self, pass_on: Callable[[str], None]) -> None:
        self._pass_on = pass_on
        self._sieve = LineLimiter(self._line, most=_MOST_LINES)
        self._last: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self._rest = b""
        self._ended = asyncio.Event()
        self._transport: asyncio.BaseTransport | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def listen(self, number: int) -> None:
        """To the end of a pipe, which is closed with this."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(lambda: self, open(number, "rb", buffering=0))  # noqa: ASYNC230, SIM115 - it is open already

    def data_received(self, data: bytes) -> None:
        *lines, rest = (self._rest + data[-_TOLD * 4 :]).split(b"\n")
        self._last.extend(lines[-_KEPT_LINES:])
        self._rest = rest[-_TOLD:]
        self._sieve.feed(data)
        if self._sieve.held and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(1.0, self._tick)

    def connection_lost(self, _: Exception | None) -> None:
        self._sieve.end()
        self._ended.set()

    async def over(self, within_s: float) -> None:
        """Until all was heard that a process, which has ended, had said."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._ended.wait()

    def last(self) -> str:
        text = b"\n".join([*self._last, self._rest])[-_TOLD:]
        return text.decode(errors="replace").strip()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.close()

    def _tick(self) -> None:
        self._timer = None
        self._sieve.tick()

    def _line(self, line: bytes) -> None:
        try:
            self._pass_on(line.decode(errors="replace"))
        except Exception:
            log.exception("what a generator printed could not be shown, and the run goes on")


def _environment() -> dict[str, str]:
    # numpy's algebra starts a thread for each core as soon as it is imported, and a generator has no use for any
    return {"OPENBLAS_NUM_THREADS": "1", **os.environ}


def _ended(code: int) -> str:
    return f"code {code}" if code >= 0 else f"signal {-code}"
