"""A load runner in simulation: generators that send nothing, to a target that only counts.

Each generator is a simulated host that reports a window every 100 ms of virtual time, with as many iterations as its
share of the plan makes in that time. An iteration calls each step of its workflow once; every call takes the same time,
and begins and ends in one window. No code of the test runs: `SimulatedCode` answers in its place, and remembers which
context each load had.
"""

from __future__ import annotations

import asyncio
import contextvars
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self, TypeVarTuple

from msgspec.structs import replace

from mainstay.clock import Clock
from mainstay.errors import InvalidInput
from mainstay.load.engine.messages import StartInstant, Values, WorkflowReport, WorkflowsDone
from mainstay.load.generator_process import GeneratorLost, Limits, LineHandler
from mainstay.load.generators import WindowMerger
from mainstay.load.pace import Arrivals, shares
from mainstay.load.plan import WorkflowPlan
from mainstay.load.plan_shares import done_by_slice, iterations_by_process
from mainstay.load.run_spec import RunOrder
from mainstay.load.stats.accounts import Account
from mainstay.load.stats.histogram import sketch_of
from mainstay.load.stats.model import WINDOW_MS, Health, StepStats, Window
from mainstay.testing import SimulatedHost, VirtualLoop

Ts = TypeVarTuple("Ts")

#: between the order to go and the start, as with real generators
_AHEAD_S = 0.2
_WINDOW_S = WINDOW_MS / 1000


class SimulatedCode:
    """The code of a simulated test: setups and states that return a new value each time. So a value tells how often
    its method was run before.

    >>> code = SimulatedCode(set_ups={"Shop": ["log_in"]})
    >>> code.set_up("Shop"), code.set_up("Shop")
    ({'log_in': 'log_in 1'}, {'log_in': 'log_in 2'})
    """

    def __init__(
        self,
        *,
        set_ups: Mapping[str, Sequence[str]] | None = None,
        provides: Mapping[str, Sequence[str]] | None = None,
        value_bytes: int = 0,
    ) -> None:
        """`set_ups` and `provides`: names of methods, by workflow. `value_bytes`: how long a value is at least."""
        self._set_ups = set_ups or {}
        self._provides = provides or {}
        self._value_bytes = value_bytes
        self.runs: Counter[str] = Counter()
        """how often each was run: `set_up Shop`, `collect Shop`, `tear_down Shop`"""
        self.contexts: dict[str, list[dict[str, Any]]] = {}
        """by workflow: the context of each load that began"""

    def set_up(self, workflow: str) -> dict[str, Any]:
        return self._run("set_up", workflow, self._set_ups)

    def collect(self, workflow: str) -> dict[str, Any]:
        return self._run("collect", workflow, self._provides)

    def tear_down(self, workflow: str) -> None:
        self._run("tear_down", workflow, {})

    def begin(self, workflow: str, context: dict[str, Any]) -> None:
        """Load of a workflow begins in some processes."""
        self.contexts.setdefault(workflow, []).append(context)

    def _run(self, what: str, workflow: str, names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        self.runs[f"{what} {workflow}"] += 1
        count = self.runs[f"{what} {workflow}"]
        return {name: f"{name} {count}".ljust(self._value_bytes, ".") for name in names.get(workflow, ())}


class SimulatedTarget:
    """What simulated generators send to: it counts their calls, by window. `call_s` is how long it takes to answer."""

    def __init__(self, *, call_s: float = 0.02, code: SimulatedCode | None = None) -> None:
        self.call_s = call_s
        self.code = code or SimulatedCode()
        self.calls: Counter[int] = Counter()
        """by the number of the window"""

    @property
    def total(self) -> int:
        return self.calls.total()

    def receive(self, bucket: int, calls: int, *, workflow: str, process: int, users: int) -> None:
        """Calls of one generator process in one window, and the users that make them."""
        del workflow, process, users
        self.calls[bucket] += calls

    def loading(self, plans: Sequence[WorkflowPlan], process: int) -> AbstractContextManager[object]:
        """For the time in which a generator process is under load."""
        del plans, process
        return nullcontext()


class SimulatedRunner:
    """A `mainstay.load.runner.LoadRunner`. `functools.partial(SimulatedRunner, loop=..., clock=..., target=...)` makes
    those of a `LoadRun`.

    A preparation takes `prepare_s`; with `refusal`, it is refused for that reason.
    """

    def __init__(
        self,
        processes: int,
        on_window: Callable[[Window], None],
        *,
        on_line: LineHandler = lambda _, __: None,
        limits: Limits | None = None,
        first: int = 0,
        of: int | None = None,
        until: Callable[[], float] | None = None,
        loop: VirtualLoop,
        clock: Clock,
        target: SimulatedTarget,
        prepare_s: float = 1.0,
        refusal: str = "",
    ) -> None:
        del on_line, limits  # nothing is printed, and nothing hangs
        self._of = processes if of is None else of
        self.generators = [
            SimulatedGenerator(first + number, self._of, loop, target, until) for number in range(processes)
        ]
        self.ended: asyncio.Future[None] = loop.create_future()
        self._merger = WindowMerger(processes, on_window)
        self._clock = clock
        self._code = target.code
        self._prepare_s = prepare_s
        self._refusal = refusal
        self._first = first
        self._order: RunOrder

    async def __aenter__(self) -> Self:
        for generator in self.generators:
            generator.on_end = self._check_ended
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()

    async def prepare(self, order: RunOrder) -> None:
        await self._while_all_live(asyncio.sleep(self._prepare_s), "it was preparing")
        if self._refusal:
            raise InvalidInput("test", self._refusal)
        self._order = order

    async def set_up(self, workflows: Sequence[str], shared: dict[str, dict[str, Any]], *, calls: int) -> Values:
        del shared, calls
        return await self._once(workflows, self._code.set_up, f"it set up {', '.join(workflows)}")

    async def go(
        self,
        workflows: Sequence[str],
        shared: dict[str, dict[str, Any]],
        *,
        longest_s: float,
        drain_s: float,
        start: StartInstant | None = None,
    ) -> tuple[list[WorkflowsDone], GeneratorLost | None]:
        del longest_s, drain_s
        self._merger.open(workflows)
        for name in workflows:
            self._code.begin(name, shared.get(name, {}))
        plans = [self._order.plan.workflows[name] for name in workflows]
        steps = {name: self._order.steps[name] for name in workflows}
        start = start or StartInstant(after_s=_AHEAD_S, wall=self._clock.now_ms() / 1000 + _AHEAD_S)
        reports: list[WorkflowsDone] = []
        lost: GeneratorLost | None = None
        own = range(self._first, self._first + len(self.generators))
        done = done_by_slice(self._order.plan, start.done, own, self._of)
        going = [
            asyncio.ensure_future(self._going(one, plans, steps, replace(start, done=before)))
            for one, before in zip(self.generators, done, strict=True)
        ]
        for generator, answer in zip(self.generators, await asyncio.gather(*going), strict=True):
            if answer is not None:
                reports.append(answer)
            else:
                lost = lost or generator.loss("it was under load")
        return reports, lost

    async def _going(
        self,
        generator: SimulatedGenerator,
        plans: Sequence[WorkflowPlan],
        steps: dict[str, list[str]],
        start: StartInstant,
    ) -> WorkflowsDone | None:
        def add(window: Window, draining: Sequence[str]) -> None:
            self._merger.add(generator.number - self._first, window, draining=draining)

        try:
            return await generator.go(plans, steps, start, add)
        finally:
            if not generator.host.alive:
                # without it, the others do not produce the requested load
                self.stop(hurry=True)
            self._merger.close(generator.number - self._first)

    def stop(self, *, hurry: bool) -> None:
        del hurry  # an iteration never lasts longer than a window
        for generator in self.generators:
            generator.stopping.set()

    def give_up(self) -> None:
        self.stop(hurry=True)

    def kill(self) -> None:
        for generator in self.generators:
            generator.kill()

    async def collect_provided(self, workflows: Sequence[str], *, calls: int) -> Values:
        del calls
        return await self._once(workflows, self._code.collect, f"it collected what {', '.join(workflows)} provides")

    async def tear_down(self, workflows: Sequence[str], *, calls: int) -> Values:
        del calls
        await self._once(workflows, self._code.tear_down, f"it tore down {', '.join(workflows)}")
        return Values()

    async def _once(self, workflows: Sequence[str], run: Callable[[str], dict[str, Any] | None], doing: str) -> Values:
        """As with real generators, the first one does it."""
        await asyncio.sleep(0)
        if not self.generators[0].host.alive:
            raise self.generators[0].loss(doing)
        returned = {name: run(name) for name in workflows}
        return Values(values={name: values for name, values in returned.items() if values})

    async def _while_all_live(self, work: Any, doing: str) -> None:
        await work
        for generator in self.generators:
            if not generator.host.alive:
                raise generator.loss(doing)

    def _check_ended(self) -> None:
        if not self.ended.done() and not any(generator.host.alive for generator in self.generators):
            self.ended.set_result(None)


class SimulatedGenerator:
    """One generator process: number `number` of `processes`. `kill` ends it without a last window. It ends and freezes
    with the process that made it."""

    def __init__(
        self,
        number: int,
        processes: int,
        loop: VirtualLoop,
        target: SimulatedTarget,
        until: Callable[[], float] | None,
    ) -> None:
        self.number = number
        parent = loop.running_host
        name = f"generator {number}" if parent is None else f"{parent.name}/generator {number}"
        self.host: SimulatedHost = loop.host(name, on=parent)
        self.on_end: Callable[[], None] = lambda: None
        self.stopping = asyncio.Event()
        self._processes = processes
        self._loop = loop
        self._target = target
        self._until = until
        self._collector = contextvars.copy_context()
        self._done: asyncio.Future[WorkflowsDone | None] | None = None

    def kill(self) -> None:
        if self.host.alive:
            self.host.crash()
            self._report(self._answer, None)
            self.on_end()

    @property
    def is_loading(self) -> bool:
        """Whether it sends, or is about to."""
        return self.host.alive and self._done is not None and not self._done.done()

    def loss(self, doing: str) -> GeneratorLost:
        return GeneratorLost(f"generator {self.number} ended with signal 9, while {doing}; its last output: nothing")

    async def go(
        self,
        plans: Sequence[WorkflowPlan],
        steps: dict[str, list[str]],
        start: StartInstant,
        add: Callable[[Window, Sequence[str]], None],
    ) -> WorkflowsDone | None:
        """Its report; None if it was killed."""
        self._collector = contextvars.copy_context()
        self._done = self._loop.create_future()
        if self.host.alive:
            self.host.start(self._generate(plans, steps, start, add))
        else:
            self._answer(None)
        return await self._done

    def _report(self, call: Callable[[*Ts], object], *args: *Ts) -> None:
        """What comes from the process runs where its collector runs."""
        self._loop.call_soon(call, *args, context=self._collector)

    def _answer(self, report: WorkflowsDone | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(report)

    async def _generate(
        self,
        plans: Sequence[WorkflowPlan],
        steps: dict[str, list[str]],
        start: StartInstant,
        add: Callable[[Window, Sequence[str]], None],
    ) -> None:
        due_s = self._loop.time() + start.after_s
        await asyncio.sleep(start.after_s)
        late_s = max(0.0, self._loop.time() - due_s)
        # one that stood still sends nothing when it goes on
        with nullcontext() if self._is_too_late else self._target.loading(plans, self.number):
            await self._load(plans, steps, start, add, late_s)

    @property
    def _is_too_late(self) -> bool:
        """Whether its part may be another machine's."""
        return self._until is not None and self._loop.time() > self._until()

    async def _load(
        self,
        plans: Sequence[WorkflowPlan],
        steps: dict[str, list[str]],
        start: StartInstant,
        add: Callable[[Window, Sequence[str]], None],
        late_s: float,
    ) -> None:
        began_s = self._loop.time()
        bucket = round(start.wall * 1000) // WINDOW_MS
        loads = [
            WorkflowLoad(
                plan,
                steps[plan.name],
                self.number,
                self._processes,
                self._target.call_s,
                begin_s=start.begin_s,
                done=start.done.get(plan.name, 0),
            )
            for plan in plans
        ]
        elapsed_s, plan_s = 0.0, start.begin_s
        while not all(load.is_over(plan_s) for load in loads) and not self.stopping.is_set():
            await asyncio.sleep(_WINDOW_S)
            if self._is_too_late:
                break
            elapsed_s = self._loop.time() - began_s
            plan_s = start.begin_s + elapsed_s
            window = Window(bucket=bucket, process=self.number, health={self.number: Health()})
            for load in loads:
                before = window.users
                calls = load.add_to(window, plan_s)
                self._target.receive(
                    bucket, calls, workflow=load.plan.name, process=self.number, users=window.users - before
                )
            draining = [load.plan.name for load in loads if load.is_over(plan_s) or self.stopping.is_set()]
            self._report(add, window, draining)
            bucket += 1
        reports = {load.plan.name: load.report() for load in loads}
        done = WorkflowsDone(workflows=reports, took=elapsed_s, loaded=elapsed_s, late_s=late_s)
        self._report(self._answer, done)


class WorkflowLoad:
    """The share of one generator in one workflow: how many iterations it has made by when, in seconds of the plan. It
    may begin in the middle of the plan, with some iterations of its share done."""

    def __init__(
        self,
        plan: WorkflowPlan,
        steps: Sequence[str],
        process: int,
        processes: int,
        call_s: float,
        *,
        begin_s: float = 0.0,
        done: int = 0,
    ) -> None:
        self.plan = plan
        self._steps = steps
        self._iteration_s = call_s * len(steps)
        self._call_s = call_s
        self._users = 0.0 if plan.users is None else shares(plan.most_users, processes)[process] / plan.most_users
        """its part of the users"""
        self._due = (
            None
            if plan.arrivals is None
            else list(Arrivals(plan.arrivals, process, processes, poisson=plan.poisson).times(since=begin_s))
        )
        self._most = None if plan.iterations is None else max(0, iterations_by_process(plan, processes)[process] - done)
        self._begin_s = begin_s
        self._continues = bool(begin_s or done)
        self._made = 0

    def is_over(self, plan_s: float) -> bool:
        if self._most is not None and self._made >= self._most:
            return True
        return self.plan.duration_s is not None and plan_s >= self.plan.duration_s - 1e-9

    def add_to(self, window: Window, plan_s: float) -> int:
        """Add the iterations since the last window; the number of calls that they made."""
        new = self.made_by(plan_s) - self._made
        self._made += new
        window.begun += new
        window.iterations += new
        window.arrivals += new if self._due is not None else 0
        window.users += round(0 if self.plan.users is None else self.plan.users.level(plan_s) * self._users)
        times = array("d", [self._call_s]) * new
        if new:
            window.steps += [
                StepStats(
                    workflow=self.plan.name,
                    step=step,
                    ok=sketch_of(times),
                    response=sketch_of(times) if self._due is not None else None,
                    statuses={"200": new},
                )
                for step in self._steps
            ]
        calls = new * len(self._steps)
        window.sent_calls += calls
        window.answered_calls += calls
        return calls

    def report(self) -> WorkflowReport:
        is_open = self._due is not None
        account = Account(open=is_open, arrivals=self._made if is_open else 0, begun=self._made, completed=self._made)
        unmade = 0 if self._most is None else self._most - self._made
        return WorkflowReport(
            iterations=self._made,
            clean=self._made,
            account=account,
            unmade=unmade,
            nothing_left=self._continues and not self._made,
        )

    def made_by(self, plan_s: float) -> int:
        """How many iterations it has made by a time of the plan."""
        if self._due is not None:
            return bisect_left(self._due, plan_s - 1e-9)
        assert self.plan.users is not None
        user_s = (self.plan.users.area(plan_s) - self.plan.users.area(self._begin_s)) * self._users
        made = int(user_s / self._iteration_s + 1e-9)
        return made if self._most is None else min(self._most, made)
