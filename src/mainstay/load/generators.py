"""The generator processes of a run, as the collecting process sees them: start, command, and merge their windows.

A window is passed on when every process has sent its part, so that it is complete. Windows are numbered alike in all
processes.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from msgspec.structs import replace

from ..errors import InvalidInput
from .engine.messages import (
    Begin,
    BeginRefused,
    CollectProvided,
    GiveUp,
    Go,
    KeepAlive,
    SetUp,
    StartInstant,
    StopRun,
    TearDown,
    ToGenerator,
    Values,
    WindowReport,
    WorkflowsDone,
)
from .generator_process import GeneratorLost, GeneratorProcess, Limits, LineHandler
from .plan_shares import done_by_slice
from .run_spec import RunOrder
from .stats.model import Window
from .stats.tally import merge_windows

#: between the order to go and the start: every process must have received it
_AHEAD_S = 0.2
#: how often leases are renewed
_KEEP_S = 0.5


class Generators:
    """The generator processes of one run on this machine, all of them or a part: a `LoadRunner`."""

    def __init__(
        self,
        processes: int,
        on_window: Callable[[Window], None],
        *,
        on_line: LineHandler = lambda _, __: None,
        limits: Limits | None = None,
        first: int = 0,
        of: int | None = None,
        environment: Mapping[str, str] = {},
        folder: str = "",
        until: Callable[[], float] | None = None,
    ) -> None:
        """`on_line` takes the lines that they print. They are numbered from `first`, and the load is dealt over `of`
        processes; None: these are all. `environment` is added to that of this process, and `folder` is where they run;
        empty: where this process runs. Processes on nodes run the code of a bundle: see `bundles.code_environment`.
        `until`: to when they may send, by `boot_time`. This process repeats it for them while it runs; they end their
        load when it is over, also if they are suspended together and then continue."""
        self._of = processes if of is None else of
        if not 0 <= first <= first + processes <= self._of:
            last = first + processes - 1
            raise InvalidInput("first", f"processes {first} to {last} are not among 0 to {self._of - 1}")
        self._limits = limits or Limits()
        self._first_number = first
        self._folder = folder
        self._until = until
        self._processes = [
            GeneratorProcess(first + number, self._limits, on_line, environment=environment, folder=folder)
            for number in range(processes)
        ]
        self._merger = WindowMerger(processes, on_window)
        self._drain_s = 0.0
        self._given_up = False
        self._let_go_s = self._limits.let_go_s
        """the time limit of a request once the run is given up"""
        self._order: RunOrder
        self.ended: asyncio.Future[None]

    async def __aenter__(self) -> Self:
        # wait for all, even if one fails: a process that is still starting could not be ended
        try:
            started = await asyncio.gather(*(process.start() for process in self._processes), return_exceptions=True)
        except asyncio.CancelledError:
            await self.__aexit__()
            raise
        errors = [error for error in started if error is not None]
        if errors:
            await self.__aexit__()
            raise errors[0]
        self.ended = asyncio.ensure_future(self._all_ended())
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(process.stop() for process in self._processes))

    async def _all_ended(self) -> None:
        await asyncio.gather(*(process.ended() for process in self._processes))

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    async def prepare(self, order: RunOrder) -> None:
        """Have every process load the test; raises `InvalidInput` with the first refusal."""
        self._order = order
        answers = await asyncio.gather(
            *(
                process.ask(
                    Begin(
                        name=order.name,
                        source=order.source,
                        options=order.options,
                        plan=order.plan,
                        process=process.number,
                        processes=self._of,
                        preflight=process is self._processes[0],
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
        """Run the setups, in the first process. `calls`: how many there are."""
        return await self._first(SetUp(list(workflows), shared), f"it set up {', '.join(workflows)}", calls)

    async def go(
        self,
        workflows: Sequence[str],
        shared: dict[str, dict[str, Any]],
        *,
        longest_s: float,
        drain_s: float,
        start: StartInstant | None = None,
    ) -> tuple[list[WorkflowsDone], GeneratorLost | None]:
        """Run workflows in all processes until all are done. Returns the reports, and the loss of a process, if any. A
        process that exceeds `longest_s` from now, or `drain_s` from a stop, is killed."""
        self._merger.open(workflows)
        self._drain_s = drain_s
        start = start or StartInstant(after_s=_AHEAD_S, wall=time.time() + _AHEAD_S)
        at = time.perf_counter() + start.after_s
        order = Go(
            workflows=list(workflows),
            shared=shared,
            at=at,
            wall=start.wall,
            begin_s=start.begin_s,
            until_s=math.inf if self._until is None else self._until(),
            together=start.together,
        )
        own = range(self._first_number, self._first_number + len(self._processes))
        done = done_by_slice(self._order.plan, start.done, own, self._of)
        within_s = self._may_take(start.after_s + longest_s + self._limits.overtime_s)
        tasks = [
            asyncio.ensure_future(self._going(process, replace(order, done=before), within_s))
            for process, before in zip(self._processes, done, strict=True)
        ]
        keeping = asyncio.ensure_future(self._keep_alive())
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            raise
        finally:
            keeping.cancel()
        answers = [task.result() for task in tasks]
        lost = [answer for answer in answers if isinstance(answer, GeneratorLost)]
        return [answer for answer in answers if isinstance(answer, WorkflowsDone)], lost[0] if lost else None

    async def _keep_alive(self) -> None:
        """Renew the leases of the processes."""
        while self._until is not None:
            until_s = self._until()
            for process in self._processes:
                process.send(KeepAlive(until_s))
            await asyncio.sleep(_KEEP_S)

    async def _going(self, process: GeneratorProcess, order: Go, within_s: float) -> WorkflowsDone | GeneratorLost:
        def add(report: WindowReport) -> None:
            self._merger.add(process.number - self._first_number, report.window, draining=report.draining)

        try:
            answer = await process.ask(order, "it was under load", within_s=within_s, on_window=add)
            if isinstance(answer, WorkflowsDone):
                return answer
            return GeneratorLost(f"generator {process.number} answered with {type(answer).__name__}")
        except GeneratorLost as error:
            # without it, the others do not produce the requested load
            self.stop(hurry=True)
            return error
        except Exception:
            # a bug of ours: what the others measure would be lost
            self.stop(hurry=True)
            raise
        finally:
            self._merger.close(process.number - self._first_number)

    def stop(self, *, hurry: bool) -> None:
        """End the running workflows in good order."""
        for process in self._processes:
            process.send(StopRun(hurry))
            process.hurry(self._drain_s + self._limits.overtime_s)

    def give_up(self) -> None:
        """End the running workflows at once; kill processes that do not comply."""
        self._given_up = True
        for process in self._processes:
            process.send(GiveUp())
            process.hurry(self._let_go_s)

    def kill(self) -> None:
        """Kill all processes; pending requests fail with `GeneratorLost`."""
        for process in self._processes:
            process.kill()

    async def collect_provided(self, workflows: Sequence[str], *, calls: int) -> Values:
        """What these workflows, which are done, provide to others."""
        return await self._first(
            CollectProvided(list(workflows)), f"it collected what {', '.join(workflows)} provides", calls
        )

    async def tear_down(self, workflows: Sequence[str], *, calls: int) -> Values:
        self._let_go_s += calls * self._limits.last_once_s
        return await self._first(TearDown(list(workflows)), f"it tore down {', '.join(workflows)}", calls)

    async def _first(self, message: ToGenerator, doing: str, calls: int) -> Values:
        within_s = self._may_take(calls * self._limits.once_s + self._limits.overtime_s)
        answer = await self._processes[0].ask(message, doing, within_s=within_s)
        if not isinstance(answer, Values):
            number = self._processes[0].number
            raise GeneratorLost(f"generator {number} answered with {type(answer).__name__}, while {doing}")
        return answer

    def _may_take(self, seconds: float) -> float:
        return min(seconds, self._let_go_s) if self._given_up else seconds


class WindowMerger:
    """Merges the windows of several processes, bucket by bucket."""

    def __init__(self, processes: int, on_window: Callable[[Window], None]) -> None:
        self._processes = processes
        self._on_window = on_window
        self._parts: dict[int, list[Window]] = {}
        self._received: dict[int, float] = {}
        """by process: the last bucket"""
        self._workflows: frozenset[str] = frozenset()
        self._ends: dict[str, int] = {}
        """by workflow: the bucket in which its end began, in the first process"""

    def open(self, workflows: Iterable[str]) -> None:
        """Expect windows of these workflows from all processes."""
        self._received = dict.fromkeys(range(self._processes), -1.0)
        self._workflows = frozenset(workflows)
        self._ends = {}

    def add(self, process: int, window: Window, *, draining: Iterable[str] = ()) -> None:
        """`draining`: workflows that have begun to end in this process by the end of the window."""
        self._parts.setdefault(window.bucket, []).append(window)
        for name in draining:
            self._ends[name] = min(self._ends.get(name, window.bucket), window.bucket)
        self._received[process] = window.bucket
        self._pass_on()

    def close(self, process: int) -> None:
        """The process sends no more windows."""
        self._received[process] = float("inf")
        self._pass_on()

    def _pass_on(self) -> None:
        # the last bucket of a process may get a second part when its workflows are done
        upto = min(self._received.values())
        for bucket in sorted(bucket for bucket in self._parts if bucket < upto):
            parts = self._parts.pop(bucket)
            whole = parts[0] if len(parts) == 1 else merge_windows(parts)
            whole.draining = self._is_draining(bucket)
            self._on_window(whole)

    def _is_draining(self, bucket: int) -> bool:
        # in the bucket in which the end began, all users were at work
        return self._workflows <= {name for name, end in self._ends.items() if end < bucket}
