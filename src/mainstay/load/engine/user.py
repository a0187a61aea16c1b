"""A virtual user: one object of a workflow, and the loop that takes it through its steps.

The order of steps is worked out once. Where there is never more than one to do they are called one after the
other; only where steps overlap are there tasks.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import random
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from ...errors import CallFailed, InvalidInput
from ..blueprint import Blueprint, StepPlan
from ..hooks import Check, Metric
from ..results import Result
from .guard import StepExit, is_ours, kind_of, told_of
from .recorder import CheckRecorder, MetricRecorder, StepRecorder

if TYPE_CHECKING:
    from ..workflow import Workflow

_now = time.perf_counter

Hook = Literal["on_start", "on_stop"]


class WorkflowRecorder:
    """Where the users of one workflow in this process write down what happened."""

    def __init__(self, blueprint: Blueprint, *, open_model: bool, metrics: MetricRecorder) -> None:
        self.steps: dict[str, StepRecorder] = {}
        self.checks: dict[str, CheckRecorder] = {}
        self.metrics = metrics
        self.begun = 0
        """iterations that were started; each is counted once more when it ends"""
        self.iterations = 0
        """those that ended by themselves"""
        self.clean = 0
        """of these: nothing raised"""
        self.aborted = 0
        """those that were cut off"""
        self.last = 0.0
        """when the last one ended, of those that ended after the run was told to"""
        self.examples: dict[str, str] = {}
        self.broken: dict[Hook, dict[str, int]] = {}
        """what raised outside of steps, by kind"""
        for name, plan in blueprint.steps.items():
            # what is not measured has no times; what it raises is counted all the same
            self.steps[name] = StepRecorder(blueprint.name, name, open_model=open_model, optional=plan.optional)
            if plan.kind == "check":
                self.checks[name] = CheckRecorder(blueprint.name, name, optional=plan.optional)

    def broke(self, hook: Hook, error: Exception) -> None:
        """A method that is no step raised: it has a row beside the steps."""
        kind = f"{hook} {kind_of(error)}"
        self.example(kind, error)
        kinds = self.broken.setdefault(hook, {})
        kinds[kind] = kinds.get(kind, 0) + 1

    def example(self, kind: str, error: Exception, recorder: StepRecorder | None = None) -> None:
        """Keep what an error said as an example of its kind: of all steps, and of the one that raised."""
        missing = kind not in self.examples and len(self.examples) < 50
        if not missing and (recorder is None or not recorder.lacks_example(kind)):
            return  # to put an error into words costs more than to count it
        said = told_of(error)[:300]
        if missing:
            self.examples[kind] = said
        if recorder is not None:
            recorder.example(kind, said)


class User:
    """Who a virtual user is: `self.vu`."""

    __slots__ = ("_random", "_seed", "data", "id", "iteration", "metrics", "number", "process")

    def __init__(self, *, number: int, process: int, processes: int, metrics: MetricRecorder, seed: int) -> None:
        self.number = number
        """among those of this process, from 0"""
        self.process = process
        self.id = number * processes + process
        """among all of them, from 0"""
        self.iteration = 0
        """from 0"""
        self.data: Any = None
        """its row"""
        self.metrics = metrics
        self._seed = seed
        self._random: random.Random | None = None

    @property
    def random(self) -> random.Random:
        """Chance of its own: the same in every run with the same seed."""
        # made when it is asked for: it is larger than all the rest of a user
        if self._random is None:
            self._random = random.Random(f"{self._seed} {self.id}")
        return self._random


class StopSignal:
    """How a run is told to end, as seen by its users."""

    __slots__ = ("at", "ending", "given_up", "given_up_at", "hurried", "waiters")

    def __init__(self) -> None:
        self.at = 0.0
        """when it was told so first"""
        self.ending = False
        """begin no further iteration"""
        self.hurried = False
        """begin no further step"""
        self.given_up = asyncio.Event()
        """nobody waits for what is under way"""
        self.given_up_at = math.inf
        self.waiters: set[asyncio.Future[None]] = set()
        """pauses that can be cut short"""

    def end(self, *, hurry: bool) -> None:
        self.at = self.at or _now()
        self.ending = True
        self.hurried = self.hurried or hurry
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def give_up(self) -> None:
        self.end(hurry=True)
        self.given_up_at = min(self.given_up_at, _now())
        self.given_up.set()

    async def pause(self, seconds: float) -> None:
        """Wait, unless it ends before."""
        await self.until(_now() + seconds)

    async def until(self, at: float) -> None:
        """Wait for a time of `time.perf_counter`, unless it ends before."""
        loop = asyncio.get_running_loop()
        # timers of uvloop count whole milliseconds, and may ring one early
        while (left := at - _now()) > 0 and not self.ending:
            waiter: asyncio.Future[None] = loop.create_future()
            handle = loop.call_later(math.ceil(left * 1000) / 1000, _wake, waiter)
            self.waiters.add(waiter)
            try:
                await waiter
            finally:
                handle.cancel()
                self.waiters.discard(waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class StepWalker:
    """Takes one user through its steps."""

    __slots__ = ("_chain", "_dependants", "_graph", "_notes", "_shared", "_steps", "_stop", "me", "under_way")

    def __init__(
        self, me: Workflow, blueprint: Blueprint, notes: WorkflowRecorder, shared: Mapping[str, Any], stop: StopSignal
    ) -> None:
        self.me = me
        self.under_way = False
        """whether it is within an iteration"""
        self._shared = shared
        self._notes = notes
        self._stop = stop
        self._graph = blueprint.graph
        self._steps = {name: _Step(me, plan, notes) for name, plan in blueprint.steps.items()}
        self._chain = [self._steps[name] for name in self._graph.order()] if self._graph.is_chain else None
        self._dependants = self._graph.dependants()

    async def iterate(self, delay: float = 0.0) -> None:
        """Once through all steps. `delay`: how late it began, in an open model."""
        notes = self._notes
        notes.begun += 1
        self.under_way = True
        context = self.me.context = {**self._shared}
        clean: bool | None = True
        try:
            if self._chain is None:
                clean = await self._spread(context, delay)
            else:
                # each waits for all before it. Here, and not in coroutines of their own: two less are worth a sixth of
                # the time that an iteration of one call takes without its system calls
                first = self._chain[0]
                for step in self._chain:
                    if self._stop.hurried and step is not first:
                        clean = None
                        break
                    began = _now()
                    try:
                        result = await (step.call(context) if step.quick is None else step.quick())
                        context[step.name] = result
                        step.note(result, delay)
                    except BaseException as error:
                        if is_ours(error):
                            raise
                        step.raised(error, began, delay)
                        for other in self._chain[self._chain.index(step) + 1 :]:
                            other.skip()
                        clean = False
                        break
        except BaseException:
            # cancelled, or broken by a mistake of ours: in any case it was started, and this is its end
            notes.aborted += 1
            raise
        finally:
            self.under_way = False
        if self._stop.ending:
            notes.last = _now()
        self.me.vu.iteration += 1
        if clean is None:
            notes.aborted += 1
        else:
            notes.iterations += 1
            notes.clean += clean

    async def _spread(self, context: dict[str, Any], delay: float) -> bool | None:
        """Steps that overlap: each begins when all that it comes after are done. Whether nothing raised; None
        if it was cut short."""
        waits = {name: len(before) for name, before in self._graph.after.items()}
        left = len(waits)
        lost: set[str] = set()
        tasks: list[asyncio.Task[None]] = []

        async def walk(name: str) -> None:
            nonlocal left
            following: str | None = name
            while following is not None and not self._stop.hurried:
                step = self._steps[following]
                if not lost.isdisjoint(self._graph.after[step.name]):
                    step.skip()
                    lost.add(step.name)
                elif not await self._take(step, context, delay):
                    lost.add(step.name)
                left -= 1
                ready = []
                for other in self._dependants[step.name]:
                    waits[other] -= 1
                    if not waits[other]:
                        ready.append(other)
                following = ready[0] if ready else None
                tasks.extend(asyncio.ensure_future(walk(other)) for other in ready[1:])  # noqa: F821 - deleted below

        first, *others = self._graph.roots
        tasks.extend(asyncio.ensure_future(walk(other)) for other in others)
        try:
            await walk(first)
            while tasks:
                await tasks.pop()
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
        # it knows itself, and every response of the iteration: they would wait for the garbage collector
        del walk
        return None if left else not lost

    async def _take(self, step: _Step, context: dict[str, Any], delay: float) -> bool:
        began = _now()
        try:
            result = await (step.call(context) if step.quick is None else step.quick())
            context[step.name] = result
            step.note(result, delay)
        except BaseException as error:
            if is_ours(error):
                raise
            step.raised(error, began, delay)
            return False
        return True


class _Step:
    """A step of one user."""

    __slots__ = ("_fixed", "_function", "_notes", "_taken", "name", "note", "plan", "quick")

    def __init__(self, me: Workflow, plan: StepPlan, notes: WorkflowRecorder) -> None:
        self.name = plan.name
        self.plan = plan
        self._notes = notes
        self._function: Callable[..., Awaitable[Any]] = getattr(me, plan.name)
        self._fixed: dict[str, Any] = dict(plan.prepared)
        self._taken = plan.taken
        # most steps take the same arguments each time: calling them then costs no Python of ours
        self.quick = None if plan.taken else partial(self._function, **self._fixed)
        self.note: Callable[[Any, float], None]
        if plan.kind == "measured":
            self.note = notes.steps[plan.name].note_each if plan.several else notes.steps[plan.name].note
        elif plan.kind == "check":
            self.note = notes.checks[plan.name].note
        elif plan.kind == "metric":
            self.note = self._note_metric
        else:
            self.note = _nothing if plan.left_out else self._note_unsaid

    def call(self, context: dict[str, Any]) -> Awaitable[Any]:
        given = self._fixed.copy()
        for name in self._taken:
            if name in context:
                given[name] = context[name]
        return self._function(**given)

    def raised(self, error: BaseException, began: float, delay: float) -> None:
        """Whatever it is, it is the step's, and is counted. `began`: when the step did."""
        answers: Sequence[Result] = ()
        if self.plan.kind == "measured":
            answers = answers_in(error, since=began)
        if not isinstance(error, Exception):
            error = StepExit(error)
        if self.plan.kind == "check":
            # what could not be looked at does not hold; and it is an error like that of any step
            self._notes.checks[self.name].failed(told_of(error))
        kind = kind_of(error)
        recorder = self._notes.steps[self.name]
        self._notes.example(kind, error, recorder)
        if self.plan.kind == "measured" and isinstance(error, CallFailed):
            recorder.raised(kind, _now() - began, delay, sent=error.sent, received=error.received)
            if self.plan.several:
                for answer in answers:
                    recorder.note(answer, delay)
        else:
            # by the test itself. What it would have returned is not known: of several answers, the last was most
            # likely meant
            recorder.broke(kind, answers if self.plan.several else answers[-1:], delay)

    def skip(self) -> None:
        if self.plan.kind == "check":
            self._notes.checks[self.name].skipped += 1
        else:
            self._notes.steps[self.name].skipped += 1

    def _note_metric(self, result: Any, _: float) -> None:
        if result is None:
            return
        value, tags = (result.value, result.tags) if isinstance(result, Metric) else (result, None)
        if not isinstance(value, (int, float)):
            raise InvalidInput(self.name, f"returned {type(value).__name__}, which is not a value of a metric")
        assert self.plan.metric is not None
        self._notes.metrics.add(
            self.name, self.plan.metric, value, {**self.plan.tags, **tags} if tags else self.plan.tags
        )

    def _note_unsaid(self, result: Any, _: float) -> None:
        """It is not annotated to return what counts: what is meant to be measured would be lost without a word."""
        if result is None:
            return
        found, form = result, "{}"
        if isinstance(result, (list, tuple)):
            found, form = next((one for one in result[:_LOOKED_AT] if isinstance(one, _COUNTS)), None), "list[{}]"
        elif isinstance(result, dict):
            values = itertools.islice(result.values(), _LOOKED_AT)
            found, form = next((one for one in values if isinstance(one, _COUNTS)), None), "dict[str, {}]"
        if isinstance(found, _COUNTS):
            name = form.format("Metric[...]" if isinstance(found, Metric) else type(found).__name__)
            raise InvalidInput(self.name, f"returned a {name}, which counts if the step is annotated: -> {name}")


def _nothing(_: Any, __: float) -> None:
    """What it returns does not count, on purpose."""


def answers_in(error: BaseException, *, since: float) -> list[Result]:
    """The answers that a step had got when it raised, in the order in which they ended.

    They are looked for in the variables of the functions that the error came through: so a step that raises nothing
    pays nothing for it. `since`: when the step began; what it was given is older.
    """
    found: dict[int, Result] = {}
    errors, seen = [error], set[int]()
    while errors:
        one = errors.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        errors += [linked for linked in (one.__cause__, one.__context__) if linked is not None]
        errors += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        for frame, _ in traceback.walk_tb(one.__traceback__):
            # ours know the answers of other steps, and what a step has returned
            if not frame.f_code.co_filename.startswith(_OURS):
                found |= {id(answer): answer for answer in _answers_of(frame) if answer.started >= since}
    return sorted(found.values(), key=lambda answer: answer.ended)


def _answers_of(frame: FrameType) -> Iterator[Result]:
    for value in frame.f_locals.values():
        some = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else (value,)
        yield from (one for one in itertools.islice(some, _LOOKED_AT) if isinstance(one, Result) and _is_timed(one))


def _is_timed(answer: Result) -> bool:
    numbers = answer.started, answer.written, answer.first, answer.ended, answer.sent, answer.received
    return all(isinstance(one, (int, float)) for one in numbers)


#: the folder of these modules
_OURS = f"{Path(__file__).parent}{os.sep}"
#: what counts if a step is annotated to return it
_COUNTS = (Result, Check, Metric)
#: how many items of what a step returned are looked at, to see whether they are meant to count
_LOOKED_AT = 100
