"""A virtual user: one object of a workflow, and the loop that takes it through its steps.

The order of the steps is computed once. If no two steps can overlap, they are called one after the other; only
overlapping steps use tasks.
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
from .guard import StepExit, error_text, is_ours, kind_of
from .recorder import CheckRecorder, MetricRecorder, StepRecorder

if TYPE_CHECKING:
    from ..workflow import Workflow

_now = time.perf_counter

Hook = Literal["on_start", "on_stop"]


class WorkflowRecorder:
    """Records what the users of one workflow do in this process."""

    def __init__(self, blueprint: Blueprint, *, open_model: bool, metrics: MetricRecorder) -> None:
        self.steps: dict[str, StepRecorder] = {}
        self.checks: dict[str, CheckRecorder] = {}
        self.metrics = metrics
        self.begun = 0
        """started iterations; each is counted again when it ends"""
        self.iterations = 0
        """iterations that ended by themselves"""
        self.clean = 0
        """of these: no step raised"""
        self.aborted = 0
        """iterations that were cut off"""
        self.last = 0.0
        """the end of the last iteration that ended after the stop"""
        self.examples: dict[str, str] = {}
        self.broken: dict[Hook, dict[str, int]] = {}
        """exceptions outside of steps, by kind"""
        for name, plan in blueprint.steps.items():
            # steps that are not measured have no times, but their exceptions are counted
            self.steps[name] = StepRecorder(blueprint.name, name, open_model=open_model, optional=plan.optional)
            if plan.kind == "check":
                self.checks[name] = CheckRecorder(blueprint.name, name, optional=plan.optional)

    def broke(self, hook: Hook, error: Exception) -> None:
        """An `on_start` or `on_stop` raised: it gets its own row besides the steps."""
        kind = f"{hook} {kind_of(error)}"
        self.example(kind, error)
        kinds = self.broken.setdefault(hook, {})
        kinds[kind] = kinds.get(kind, 0) + 1

    def example(self, kind: str, error: Exception, recorder: StepRecorder | None = None) -> None:
        """Keep the text of an error as an example of its kind: of all steps, and of the one that raised."""
        missing = kind not in self.examples and len(self.examples) < 50
        if not missing and (recorder is None or not recorder.lacks_example(kind)):
            return  # formatting an error costs more than counting it
        text = error_text(error)[:300]
        if missing:
            self.examples[kind] = text
        if recorder is not None:
            recorder.example(kind, text)


class User:
    """The identity of a virtual user: `self.vu`."""

    __slots__ = ("_random", "_seed", "data", "id", "iteration", "metrics", "number", "process")

    def __init__(self, *, number: int, process: int, processes: int, metrics: MetricRecorder, seed: int) -> None:
        self.number = number
        """within this process, from 0"""
        self.process = process
        self.id = number * processes + process
        """over all processes, from 0"""
        self.iteration = 0
        """from 0"""
        self.data: Any = None
        """its row of data"""
        self.metrics = metrics
        self._seed = seed
        self._random: random.Random | None = None

    @property
    def random(self) -> random.Random:
        """Its own random numbers: the same in every run with the same seed."""
        # created on first use: it is larger than the rest of a user
        if self._random is None:
            self._random = random.Random(f"{self._seed} {self.id}")
        return self._random


class StopSignal:
    """Tells users that the run ends."""

    __slots__ = ("at", "ending", "given_up", "given_up_at", "hurried", "waiters")

    def __init__(self) -> None:
        self.at = 0.0
        """the time of the first stop"""
        self.ending = False
        """users begin no further iteration"""
        self.hurried = False
        """users begin no further step"""
        self.given_up = asyncio.Event()
        """work under way is aborted"""
        self.given_up_at = math.inf
        self.waiters: set[asyncio.Future[None]] = set()
        """pauses that a stop cuts short"""

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
        """Sleep, but only until the run ends."""
        await self.until(_now() + seconds)

    async def until(self, at: float) -> None:
        """Sleep until a time of `time.perf_counter`, but only until the run ends."""
        loop = asyncio.get_running_loop()
        # timers of uvloop count whole milliseconds, and may be one early
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
        """whether an iteration is under way"""
        self._shared = shared
        self._notes = notes
        self._stop = stop
        self._graph = blueprint.graph
        self._steps = {name: _Step(me, plan, notes) for name, plan in blueprint.steps.items()}
        self._chain = [self._steps[name] for name in self._graph.order()] if self._graph.is_chain else None
        self._dependants = self._graph.dependants()

    async def iterate(self, delay: float = 0.0) -> None:
        """Run all steps once. `delay`: how late the iteration began, in an open model."""
        notes = self._notes
        notes.begun += 1
        self.under_way = True
        context = self.me.context = {**self._shared}
        clean: bool | None = True
        try:
            if self._chain is None:
                clean = await self._spread(context, delay)
            else:
                # inlined: two coroutines less save a sixth of the time of an iteration with one call, without its
                # system calls
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
            # cancelled, or a bug of ours: the iteration has begun, and ends here
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
        """Run overlapping steps: each begins when all steps before it are done. Whether none raised; None if it was cut
        short."""
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
        # it refers to itself, and to every response of the iteration: a cycle for the garbage collector
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
        # most steps always take the same arguments: calling them then needs no Python code of ours
        self.quick = None if plan.taken else partial(self._function, **self._fixed)
        self.note: Callable[[Any, float], None]
        if plan.kind == "measured":
            self.note = notes.steps[plan.name].note_each if plan.several else notes.steps[plan.name].note
        elif plan.kind == "check":
            self.note = notes.checks[plan.name].note
        elif plan.kind == "metric":
            self.note = self._note_metric
        else:
            self.note = _ignore if plan.left_out else self._note_unannotated

    def call(self, context: dict[str, Any]) -> Awaitable[Any]:
        given = self._fixed.copy()
        for name in self._taken:
            if name in context:
                given[name] = context[name]
        return self._function(**given)

    def raised(self, error: BaseException, began: float, delay: float) -> None:
        """Count an exception of the step. `began`: when the step began."""
        answers: Sequence[Result] = ()
        if self.plan.kind == "measured":
            answers = answers_in(error, since=began)
        if not isinstance(error, Exception):
            error = StepExit(error)
        if self.plan.kind == "check":
            # a check that raises has failed; and it is an error like that of any step
            self._notes.checks[self.name].failed(error_text(error))
        kind = kind_of(error)
        recorder = self._notes.steps[self.name]
        self._notes.example(kind, error, recorder)
        if self.plan.kind == "measured" and isinstance(error, CallFailed):
            recorder.raised(kind, _now() - began, delay, sent=error.sent, received=error.received)
            if self.plan.several:
                for answer in answers:
                    recorder.note(answer, delay)
        else:
            # an error of the test. Its return value is unknown: of several responses, the last is the most likely one
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

    def _note_unannotated(self, result: Any, _: float) -> None:
        """Refuse a measurable value that the annotation does not mention: it would be lost silently."""
        if result is None:
            return
        value, form = result, "{}"
        if isinstance(result, (list, tuple)):
            value, form = next((one for one in result[:_LOOKED_AT] if isinstance(one, _COUNTS)), None), "list[{}]"
        elif isinstance(result, dict):
            values = itertools.islice(result.values(), _LOOKED_AT)
            value, form = next((one for one in values if isinstance(one, _COUNTS)), None), "dict[str, {}]"
        if isinstance(value, _COUNTS):
            name = form.format("Metric[...]" if isinstance(value, Metric) else type(value).__name__)
            raise InvalidInput(self.name, f"returned a {name}, which counts if the step is annotated: -> {name}")


def _ignore(_: Any, __: float) -> None:
    """The return value is ignored on purpose."""


def answers_in(error: BaseException, *, since: float) -> list[Result]:
    """The responses that a step had got when it raised, in the order of their ends.

    They are searched in the variables of the functions in the traceback: a step that does not raise pays nothing.
    `since`: when the step began; responses that it was given are older.
    """
    answers: dict[int, Result] = {}
    errors, seen = [error], set[int]()
    while errors:
        one = errors.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        errors += [linked for linked in (one.__cause__, one.__context__) if linked is not None]
        errors += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        for frame, _ in traceback.walk_tb(one.__traceback__):
            # not our own frames, which refer to the responses of other steps
            if not frame.f_code.co_filename.startswith(_OURS):
                answers |= {id(answer): answer for answer in _answers_of(frame) if answer.started >= since}
    return sorted(answers.values(), key=lambda answer: answer.ended)


def _answers_of(frame: FrameType) -> Iterator[Result]:
    for value in frame.f_locals.values():
        some = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else (value,)
        yield from (one for one in itertools.islice(some, _LOOKED_AT) if isinstance(one, Result) and _is_timed(one))


def _is_timed(answer: Result) -> bool:
    numbers = answer.started, answer.written, answer.first, answer.ended, answer.sent, answer.received
    return all(isinstance(one, (int, float)) for one in numbers)


#: the folder of these modules
_OURS = f"{Path(__file__).parent}{os.sep}"
#: return values that count if the step is annotated with them
_COUNTS = (Result, Check, Metric)
#: how many items of a collection are checked for such values
_LOOKED_AT = 100
