"""The generator processes of a run, seen from the one that collects: start them, talk to them, merge their windows.

A window is passed on when every process has sent its part of it, so that what is seen is whole; windows of all
processes have the same numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO, Any, Self

from ..errors import InvalidInput, MainstayError
from .engine.messages import (
    Begin,
    Ear,
    FromGenerator,
    Give,
    Go,
    Over,
    Quit,
    Refused,
    Seen,
    SetUp,
    Stop,
    TearDown,
    ToGenerator,
    Values,
    framed,
)  # fmt: skip
from .plan import LoadOptions
from .sources import Source
from .stats.folding import merge_windows
from .stats.model import Window

_MAIN = "mainstay.load.engine.main"
#: between the order to go and the start: all processes must have heard it
_AHEAD_S = 0.2
_LEAVE_S = 5.0
#: how long a process may go on after its load and its drain are over: users say goodbye, the last window is made
_OVERTIME_S = 20.0
_TOLD = 2000


class GeneratorLost(MainstayError):
    """A generator process ended before it was told to. What it had measured and sent is kept."""

    code = "generator_lost"
    retryable = False


class Fleet:
    """Some generator processes. `async with Fleet(...)`, then `begin`, then the rest in order."""

    def __init__(self, processes: int, on_window: Callable[[Window], None]) -> None:
        self._members = [_Member(number) for number in range(processes)]
        self._merger = Merger(processes, on_window)
        self._limit: asyncio.Timeout | None = None
        self._drain_s = 0.0

    async def __aenter__(self) -> Self:
        try:
            await asyncio.gather(*(member.start() for member in self._members))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(member.stop() for member in self._members))

    @property
    def pids(self) -> list[int]:
        return [member.pid for member in self._members]

    async def begin(self, name: str, source: Source, options: LoadOptions) -> None:
        """Have all of them ready; raises `InvalidInput` with what the first that refuses says."""
        answers = await asyncio.gather(
            *(
                member.ask(
                    Begin(
                        name=name,
                        source=source,
                        options=options,
                        process=member.number,
                        processes=len(self._members),
                    )
                )
                for member in self._members
            )
        )
        for answer in answers:
            if isinstance(answer, Refused):
                trace = f"\n{answer.trace.rstrip()}" if answer.trace else ""
                raise InvalidInput(answer.field, answer.rule + trace)

    async def set_up(self, workflows: Sequence[str], shared: dict[str, dict[str, Any]]) -> Values:
        """What is done once is done by the first of them."""
        return await self._first(SetUp(list(workflows), shared))

    async def go(
        self, workflows: Sequence[str], shared: dict[str, dict[str, Any]], *, longest_s: float, drain_s: float
    ) -> tuple[list[Over], GeneratorLost | None]:
        """Run workflows in all of them, until all are done: how it was for each, and whether one was lost. Those that
        go on for longer than they may, `longest_s` from now or `drain_s` from a stop, are ended."""
        self._merger.open()
        self._drain_s = drain_s
        at = time.perf_counter() + _AHEAD_S
        order = Go(workflows=list(workflows), shared=shared, at=at, wall=time.time() + _AHEAD_S)
        tasks = [asyncio.ensure_future(self._going(member, order)) for member in self._members]
        try:
            async with asyncio.timeout(None if math.isinf(longest_s) else longest_s + _OVERTIME_S) as self._limit:
                await asyncio.wait(tasks)
        except TimeoutError:
            for member, task in zip(self._members, tasks, strict=True):
                if not task.done():
                    member.give_up("did not come to its end; does one of its steps never wait for anything?")
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            raise
        finally:
            self._limit = None
        answers = [task.result() for task in tasks]
        lost = [answer for answer in answers if isinstance(answer, GeneratorLost)]
        return [answer for answer in answers if isinstance(answer, Over)], lost[0] if lost else None

    async def _going(self, member: _Member, order: Go) -> Over | GeneratorLost:
        try:
            answer = await member.ask(order, lambda window: self._merger.add(member.number, window))
            if isinstance(answer, Over):
                return answer
            return GeneratorLost(f"generator {member.number} answered with {type(answer).__name__}")
        except GeneratorLost as error:
            # what the others measure without it would not be the load that was asked for
            self.stop(hurry=True)
            return error
        finally:
            self._merger.close(member.number)

    def stop(self, *, hurry: bool) -> None:
        """Have what runs come to its end."""
        for member in self._members:
            member.say(Stop(hurry))
        if self._limit is not None and not self._limit.expired():
            latest = asyncio.get_running_loop().time() + self._drain_s + _OVERTIME_S
            self._limit.reschedule(min(self._limit.when() or latest, latest))

    async def give(self, workflows: Sequence[str]) -> Values:
        return await self._first(Give(list(workflows)))

    async def tear_down(self, workflows: Sequence[str]) -> Values:
        return await self._first(TearDown(list(workflows)))

    async def _first(self, message: ToGenerator) -> Values:
        answer = await self._members[0].ask(message)
        if not isinstance(answer, Values):
            raise GeneratorLost(f"generator 0 answered with {type(answer).__name__}")
        return answer


class Merger:
    """Puts windows of several processes together, bucket by bucket."""

    def __init__(self, processes: int, on_window: Callable[[Window], None]) -> None:
        self._processes = processes
        self._on_window = on_window
        self._parts: dict[int, list[Window]] = {}
        self._heard: dict[int, float] = {}
        """by process: the last bucket"""

    def open(self) -> None:
        """All processes are about to send."""
        self._heard = dict.fromkeys(range(self._processes), -1.0)

    def add(self, process: int, window: Window) -> None:
        self._parts.setdefault(window.bucket, []).append(window)
        self._heard[process] = window.bucket
        self._pass_on()

    def close(self, process: int) -> None:
        """It sends no more."""
        self._heard[process] = float("inf")
        self._pass_on()

    def _pass_on(self) -> None:
        # the last bucket of a process may get a second part, when what it was told to do is over
        upto = min(self._heard.values())
        for bucket in sorted(bucket for bucket in self._parts if bucket < upto):
            self._on_window(merge_windows(self._parts.pop(bucket)))


class _Member:
    """One process and the line to it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ear: Ear
        self._words: IO[bytes]
        self._given_up = ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def give_up(self, why: str) -> None:
        """End it; whoever waits for its answer is told why."""
        assert self._process is not None
        self._given_up = why
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        self._words = tempfile.TemporaryFile(prefix="mainstay-load-")  # noqa: SIM115 - closed by `stop`
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", _MAIN, str(theirs.fileno()), str(os.getpid())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._words,
                stderr=self._words,
                pass_fds=(theirs.fileno(),),
            )
        finally:
            theirs.close()
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=1 << 22)
        self._ear = Ear(reader, FromGenerator)

    def say(self, message: ToGenerator) -> None:
        if self._writer is not None:
            with contextlib.suppress(ConnectionError, RuntimeError):
                self._writer.write(framed(message))

    async def ask(self, message: ToGenerator, on_window: Callable[[Window], None] | None = None) -> FromGenerator:
        """Say something and wait for the answer; windows come before it."""
        self.say(message)
        while (heard := await self._ear.hear()) is not None:
            if not isinstance(heard, Seen):
                answer: FromGenerator = heard
                return answer
            if on_window is not None:
                on_window(heard.window)
        assert self._process is not None
        code = await self._process.wait()
        if self._given_up:
            raise GeneratorLost(f"generator {self.number} {self._given_up}")
        raise GeneratorLost(
            f"generator {self.number} ended with {_ended(code)}; it said last: {self._said() or 'nothing'}"
        )

    def _said(self) -> str:
        self._words.seek(0)
        return self._words.read()[-_TOLD:].decode(errors="replace").strip()

    async def stop(self) -> None:
        if self._process is None:
            return
        self.say(Quit())
        try:
            await asyncio.wait_for(self._process.wait(), _LEAVE_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._writer is not None:
            self._writer.close()
        self._words.close()


def _ended(code: int) -> str:
    return f"code {code}" if code >= 0 else f"signal {-code}"
