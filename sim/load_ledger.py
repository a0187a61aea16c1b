"""What a simulated target counts of the load runs on simulated nodes, and how much of it the plan allows.

A target knows who sends: which assignment (token) of which slice, from which of the numbered generator processes. So it
can tell load that is made twice from load that another assignment has continued.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import msgspec

from mainstay.load.fleet import FleetSettings
from mainstay.load.fleet.spec import FleetOptions, SliceCall
from mainstay.load.plan import WorkflowPlan
from mainstay.testing import SimulatedHost, VirtualLoop

from .load_plans import CALL_S, simulated_code
from .load_runner import SimulatedCode, SimulatedTarget, WorkflowLoad

_WINDOW_S = 0.1
#: how much later than planned a window may be counted
_LATE_S = 0.05
#: a process that sent nothing for longer stood still. What it makes up for is not in its plan
_STOOD_STILL_S = 0.5


class SliceKey(msgspec.Struct, frozen=True, order=True):
    """An assignment of a slice."""

    round: int
    number: int
    token: int


class AssignmentLoad(SimulatedTarget):
    """The target as one assignment of a slice reaches it."""

    def __init__(
        self,
        ledger: RunLedger,
        key: SliceKey,
        engine: SimulatedHost,
        enter: Callable[[int], AbstractContextManager[None]],
    ):
        super().__init__(call_s=CALL_S, code=ledger.code(key.round))
        self.key = key
        self.engine = engine
        """the process that serves the slice"""
        self.node = engine.name.partition("/")[0]
        self.by_workflow: Counter[str] = Counter()
        self._ledger = ledger
        self._enter = enter

    def receive(self, bucket: int, calls: int, *, workflow: str, process: int, users: int) -> None:
        super().receive(bucket, calls, workflow=workflow, process=process, users=users)
        self.by_workflow[workflow] += calls
        self._ledger.count(self, workflow, process, calls, users)

    @contextmanager
    def loading(self, plans: Sequence[WorkflowPlan], process: int) -> Iterator[None]:
        with self._enter(process):
            self._ledger.begin(self.key, plans)
            yield


class RunLedger:
    """What one run sent. `broken` takes a sentence for what the plan does not allow."""

    def __init__(
        self,
        job: str,
        options: FleetOptions,
        loop: VirtualLoop,
        *,
        broken: Callable[[str], None],
        went_on: Callable[[str], bool],
    ) -> None:
        """`went_on`: whether a node stood still, and goes on since a moment ago."""
        self.job = job
        self.options = options
        self.assignments: dict[SliceKey, AssignmentLoad] = {}
        self._loop = loop
        self._broken = broken
        self._went_on = went_on
        self._codes: dict[int, SimulatedCode] = {}
        """by round: each runs all setups"""
        self._origin_s: dict[tuple[int, str], float] = {}
        """by round and workflow: when it began"""
        self._began_s: dict[tuple[SliceKey, str], float] = {}
        """by assignment and workflow: when its first process began"""
        self._processes: dict[int, int] = {}
        """by round: of all slices"""
        self._sent: Counter[tuple[int, str, int]] = Counter()
        """by round, workflow and process: calls of all assignments, but of machines that had stood still"""
        self._last_s: dict[tuple[SliceKey, str, int], float] = {}
        self._seconds: Counter[tuple[str, int]] = Counter()
        self._users: dict[tuple[str, SliceKey, int], tuple[float, int]] = {}
        """by workflow, assignment and process: when it last sent, and with how many users"""
        self._planned: dict[tuple[int, str, int], WorkflowLoad] = {}

    def assignment(
        self,
        call: SliceCall,
        token: int,
        engine: SimulatedHost,
        of: int,
        enter: Callable[[int], AbstractContextManager[None]],
    ) -> AssignmentLoad:
        """The target for the generators of an assignment. `of`: the processes of all slices."""
        self._processes[call.round] = of
        key = SliceKey(call.round, call.number, token)
        made = self.assignments[key] = AssignmentLoad(self, key, engine, enter)
        return made

    def code(self, round_: int) -> SimulatedCode:
        """The code of the test, in one start of the run."""
        if round_ not in self._codes:
            self._codes[round_] = simulated_code()
        return self._codes[round_]

    def check_contexts(self) -> None:
        """All slices of a workflow have the same context, whichever leader started them."""
        for round_, code in self._codes.items():
            for workflow, contexts in code.contexts.items():
                if any(context != contexts[0] for context in contexts):
                    self._broken(f"{self.job}: the slices of {workflow} in round {round_} had the contexts {contexts}")

    def begin(self, key: SliceKey, plans: Sequence[WorkflowPlan]) -> None:
        for plan in plans:
            self._origin_s.setdefault((key.round, plan.name), self._loop.true_s)
            self._began_s.setdefault((key, plan.name), self._loop.true_s)

    def start_skew_s(self, keys: Collection[SliceKey], workflow: str) -> float:
        """How far apart these assignments began a workflow."""
        began_s = [at_s for (key, name), at_s in self._began_s.items() if key in keys and name == workflow]
        return max(began_s) - min(began_s) if began_s else 0.0

    @property
    def rounds(self) -> list[int]:
        """Those that were under load."""
        return sorted({round_ for round_, _ in self._origin_s})

    def total(self, round_: int) -> int:
        """All calls of a round."""
        return sum(each.total for key, each in self.assignments.items() if key.round == round_)

    def count(self, by: AssignmentLoad, workflow: str, process: int, calls: int, users: int) -> None:
        now_s, round_ = self._loop.true_s, by.key.round
        last_s = self._last_s.get((by.key, workflow, process), now_s - _WINDOW_S)
        self._last_s[by.key, workflow, process] = now_s
        self._users[workflow, by.key, process] = now_s, users
        if calls and now_s - last_s > FleetSettings().lost_s:
            self._broken(
                f"{self.job}: process {process} of {by.key} on {by.node} stood still for {now_s - last_s:.1f} s, and "
                f"made {calls} calls of {workflow} when it went on"
            )
        if now_s - last_s > _STOOD_STILL_S or self._went_on(by.node):
            return
        self._sent[round_, workflow, process] += calls
        self._seconds[workflow, int(now_s)] += calls
        plan_s = now_s - self._origin_s[round_, workflow] + _LATE_S
        allowed = self._steps(workflow) * (self._planned_load(round_, workflow, process).made_by(plan_s) + 1)
        if self._sent[round_, workflow, process] > allowed:
            sent = self._sent[round_, workflow, process]
            self._broken(
                f"{self.job}: process {process} made {sent} calls of {workflow} by second {plan_s:.1f} of the plan, "
                f"which has {allowed}; the last by {by.key} on {by.node}"
            )

    def check_second(self, second: int) -> None:
        """The calls of a whole second, which is over."""
        for workflow, plan in self.options.spec.plan.workflows.items():
            calls = self._seconds.pop((workflow, second), 0)
            rate = plan.arrivals.highest if plan.arrivals is not None else plan.most_users / self._iteration_s(workflow)
            # a window is counted at its end, and each process rounds its share
            most = self._steps(workflow) * (rate * (1 + _WINDOW_S) + max(self._processes.values(), default=0))
            if calls > most:
                self._broken(f"{self.job}: {calls} calls of {workflow} in second {second}, the plan allows {most:.0f}")

    def check_users(self) -> None:
        """The users that are at work now."""
        since_s = self._loop.true_s - _WINDOW_S - _LATE_S
        at_work: Counter[str] = Counter()
        for (workflow, _, _), (at_s, users) in self._users.items():
            at_work[workflow] += users if at_s > since_s else 0
        for workflow, users in at_work.items():
            plan = self.options.spec.plan.workflows[workflow]
            if plan.users is not None and users > plan.most_users:
                self._broken(f"{self.job}: {users} users of {workflow} at work, the plan has {plan.most_users}")

    def _planned_load(self, round_: int, workflow: str, process: int) -> WorkflowLoad:
        key = round_, workflow, process
        if key not in self._planned:
            # users begin no later if others did a part of their iterations
            plan = msgspec.structs.replace(self.options.spec.plan.workflows[workflow], iterations=None)
            steps = self.options.spec.order.steps[workflow]
            self._planned[key] = WorkflowLoad(plan, steps, process, self._processes[round_], CALL_S)
        return self._planned[key]

    def _steps(self, workflow: str) -> int:
        return len(self.options.spec.order.steps[workflow])

    def _iteration_s(self, workflow: str) -> float:
        return CALL_S * self._steps(workflow)


__all__ = ["AssignmentLoad", "RunLedger", "SliceKey"]
