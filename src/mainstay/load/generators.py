"""The generator processes of a run, seen from the one that collects: start them, talk to them, merge their windows.

A window is passed on when every process has sent its part of it, so that what is seen is whole; windows of all
processes have the same numbers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from ..errors import InvalidInput
from .engine.messages import (
    Begin,
    BeginRefused,
    CollectProvided,
    GiveUp,
    Go,
    SetUp,
    StopRun,
    TearDown,
    ToGenerator,
    Values,
    WindowReport,
    WorkflowsDone,
)
from .generator_process import GeneratorLost, GeneratorProcess, Limits, LineHandler
from .planned_run import PlannedRun
from .stats.model import Window
from .stats.tally import merge_windows

__all__ = ["GeneratorLost", "Generators", "Limits", "WindowMerger"]

#: between the order to go and the start: all processes must have heard it
_AHEAD_S = 0.2


class Generators:
    """Some generator processes. `async with Generators(...)`, then `begin`, then the rest in order."""

    def __init__(
        self,
        processes: int,
        on_window: Callable[[Window], None],
        *,
        on_line: LineHandler = lambda _, __: None,
        limits: Limits | None = None,
    ) -> None:
        """`on_line` takes what they print."""
        self._limits = limits or Limits()
        self._processes = [GeneratorProcess(number, self._limits, on_line) for number in range(processes)]
        self._merger = WindowMerger(processes, on_window)
        self._drain_s = 0.0
        self._given_up = False
        self._let_go_s = self._limits.let_go_s
        """how long what is asked now may take, once the run is given up"""

    async def __aenter__(self) -> Self:
        # all of them, also if one cannot be: what is still being started could not be ended
        try:
            started = await asyncio.gather(*(process.start() for process in self._processes), return_exceptions=True)
        except asyncio.CancelledError:
            await self.__aexit__()
            raise
        errors = [one for one in started if one is not None]
        if errors:
            await self.__aexit__()
            raise errors[0]
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(process.stop() for process in self._processes))

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    async def begin(self, planned: PlannedRun) -> None:
        """Have every process load the test; raises `InvalidInput` with the first refusal."""
        answers = await asyncio.gather(
            *(
                process.ask(
                    Begin(
                        name=planned.test.name,
                        source=planned.test.source,
                        options=planned.options,
                        plan=planned.plan,
                        process=process.number,
                        processes=len(self._processes),
                    ),
                    "it was preparing (it loads the test and looks up its hosts)",
                    within_s=self._may_take(self._limits.begin_s),
                )
                for process in self._processes
            )
        )
        for answer in answers:
            if isinstance(answer, BeginRefused):
                trace = f"\n{answer.trace.rstrip()}" if answer.trace else ""
                raise InvalidInput(answer.field, answer.rule + trace)

    async def set_up(self, workflows: Sequence[str], shared: dict[str, dict[str, Any]], *, calls: int) -> Values:
        """What is done once is done by the first of them. `calls`: of how many things it consists."""
        return await self._first(SetUp(list(workflows), shared), f"it set up {', '.join(workflows)}", calls)

    async def go(
        self, workflows: Sequence[str], shared: dict[str, dict[str, Any]], *, longest_s: float, drain_s: float
    ) -> tuple[list[WorkflowsDone], GeneratorLost | None]:
        """Run workflows in all of them, until all are done: how it was for each, and whether one was lost. Those that
        go on for longer than they may, `longest_s` from now or `drain_s` from a stop, are ended."""
        self._merger.open(workflows)
        self._drain_s = drain_s
        at = time.perf_counter() + _AHEAD_S
        order = Go(workflows=list(workflows), shared=shared, at=at, wall=time.time() + _AHEAD_S)
        within_s = self._may_take(_AHEAD_S + longest_s + self._limits.overtime_s)
        tasks = [asyncio.ensure_future(self._going(process, order, within_s)) for process in self._processes]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            raise
        answers = [task.result() for task in tasks]
        lost = [answer for answer in answers if isinstance(answer, GeneratorLost)]
        return [answer for answer in answers if isinstance(answer, WorkflowsDone)], lost[0] if lost else None

    async def _going(self, process: GeneratorProcess, order: Go, within_s: float) -> WorkflowsDone | GeneratorLost:
        def add(seen: WindowReport) -> None:
            self._merger.add(process.number, seen.window, draining=seen.draining)

        try:
            answer = await process.ask(order, "it was under load", within_s=within_s, on_seen=add)
            if isinstance(answer, WorkflowsDone):
                return answer
            return GeneratorLost(f"generator {process.number} answered with {type(answer).__name__}")
        except GeneratorLost as error:
            # what the others measure without it would not be the load that was asked for
            self.stop(hurry=True)
            return error
        except Exception:
            # ours; nobody would take what the others measure
            self.stop(hurry=True)
            raise
        finally:
            self._merger.close(process.number)

    def stop(self, *, hurry: bool) -> None:
        """Have what runs come to its end."""
        for process in self._processes:
            process.say(StopRun(hurry))
            process.hurry(self._drain_s + self._limits.overtime_s)

    def give_up(self) -> None:
        """Have what runs end at once; those that do not are ended themselves."""
        self._given_up = True
        for process in self._processes:
            process.say(GiveUp())
            process.hurry(self._let_go_s)

    def kill(self) -> None:
        """End all of them; whoever waits for one hears that it was lost."""
        for process in self._processes:
            process.kill()

    async def give(self, workflows: Sequence[str], *, calls: int) -> Values:
        return await self._first(
            CollectProvided(list(workflows)), f"it gave what {', '.join(workflows)} provides", calls
        )

    async def tear_down(self, workflows: Sequence[str], *, calls: int) -> Values:
        self._let_go_s += calls * self._limits.last_once_s
        return await self._first(TearDown(list(workflows)), f"it tore down {', '.join(workflows)}", calls)

    async def _first(self, message: ToGenerator, doing: str, calls: int) -> Values:
        within_s = self._may_take(calls * self._limits.once_s + self._limits.overtime_s)
        answer = await self._processes[0].ask(message, doing, within_s=within_s)
        if not isinstance(answer, Values):
            raise GeneratorLost(f"generator 0 answered with {type(answer).__name__}, while {doing}")
        return answer

    def _may_take(self, seconds: float) -> float:
        return min(seconds, self._let_go_s) if self._given_up else seconds


class WindowMerger:
    """Puts windows of several processes together, bucket by bucket."""

    def __init__(self, processes: int, on_window: Callable[[Window], None]) -> None:
        self._processes = processes
        self._on_window = on_window
        self._parts: dict[int, list[Window]] = {}
        self._heard: dict[int, float] = {}
        """by process: the last bucket"""
        self._workflows: frozenset[str] = frozenset()
        self._ends: dict[str, int] = {}
        """by workflow: the bucket in which its end began, in the first process"""

    def open(self, workflows: Iterable[str]) -> None:
        """All processes are about to send what these do."""
        self._heard = dict.fromkeys(range(self._processes), -1.0)
        self._workflows = frozenset(workflows)
        self._ends = {}

    def add(self, process: int, window: Window, *, draining: Iterable[str] = ()) -> None:
        """`draining`: workflows whose end has begun in this process by the end of the window."""
        self._parts.setdefault(window.bucket, []).append(window)
        for name in draining:
            self._ends[name] = min(self._ends.get(name, window.bucket), window.bucket)
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
            whole = merge_windows(self._parts.pop(bucket))
            whole.draining = self._is_draining(bucket)
            self._on_window(whole)

    def _is_draining(self, bucket: int) -> bool:
        # in the one in which it began, all users were at work
        return self._workflows <= {name for name, end in self._ends.items() if end < bucket}
