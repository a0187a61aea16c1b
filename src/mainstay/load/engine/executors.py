"""How load is produced: a number of users that loop (closed), or arrivals at set times (open)."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Coroutine, Iterator
from typing import Any, Protocol

from ..feeders import NoMoreRows
from ..pace import Ramp
from .timer import Timer
from .user import StopSignal
from .workflow_users import Visitor, WorkflowUsers

log = logging.getLogger("mainstay.load")

_now = time.perf_counter

#: how long a cancelled user may take to leave
_LEAVE_S = 10.0
#: the same after the run was given up
_LEAVE_AT_ONCE_S = 2.0
#: longer than any run
_LONG_S = 1e6

#: users that start in one turn, so that thousands do not connect at the same instant
_AT_ONCE, _TURN_S = 200, 0.01
_TICK_S = 0.1
#: iterations of a user that never waits before it lets others run
_IN_A_ROW = 64
#: arrivals closer to each other than this start together
_GRAIN_S = 0.00005
#: without catch-up, a later arrival is dropped
_LATE_S = 0.01
#: the most waiting arrivals, as a multiple of `max_in_flight`
_BACKLOG = 10


class Executor(Protocol):
    """Runs the users of a workflow from start to end."""

    async def run(self, start: float) -> None:
        """Returns when its time is over or it is stopped, and every user has left. `start`: by perf_counter; a process
        that continues a plan begins in the middle of it."""
        ...


def executor_of(group: WorkflowUsers) -> Executor:
    return ClosedExecutor(group) if group.plan.arrivals is None else OpenExecutor(group)


class ClosedExecutor:
    """A number of users over time, each repeating its iterations. Also for a fixed number of iterations."""

    def __init__(self, group: WorkflowUsers) -> None:
        self._group = group
        self._plan = group.plan
        self._tasks: set[asyncio.Task[None]] = set()
        self._visitors: dict[Visitor, None] = {}
        """present users, in the order of their start"""
        self._changed = asyncio.Event()
        self._left = self._most = group.left
        """iterations that have not begun, and how many there were: no more users are needed"""
        self._out = 0
        """users that could not begin; they are not replaced"""
        self._rows_left = True

    async def run(self, start: float) -> None:
        plan, stop = self._plan, self._group.stop
        assert plan.users is not None
        ramp = plan.users
        steady = len({level for _, level in ramp.points}) == 1
        # the start of the plan
        origin = start - self._group.begin_s
        ends = origin + ramp.ends
        try:
            while not stop.ending and (now := _now()) < ends:
                # a timer may be early, and before the start the level is zero: the run would end at once
                missing = self._adjust(ramp, max(self._group.begin_s, now - origin))
                if steady and not self._tasks:
                    # no user is left, and none will come
                    if self._out and self._rows_left and plan.iterations is not None:
                        self._group.unmade = int(self._left)
                    break
                if missing:
                    await stop.pause(_TURN_S)
                elif steady:
                    await self._until(ends)
                else:
                    await stop.pause(min(_TICK_S, ends - now))
        finally:
            stop.end(hurry=False)
            if await gone(self._tasks, plan.drain_s, stop):
                for visitor in self._visitors:
                    self._group.left_behind(visitor)

    async def _until(self, ends: float) -> None:
        """Wait for the end, or for a user to leave: it may be the last one."""
        self._changed.clear()
        await either(self._changed.wait(), self._group.stop.pause(min(ends - _now(), _LONG_S)))

    def _adjust(self, ramp: Ramp, elapsed: float) -> bool:
        """Start or retire users towards the wanted number; whether more are to be started."""
        wanted = int(max(0, min(self._most, self._group.share.of(round(ramp.level(elapsed)))) - self._out))
        present = [visitor for visitor in self._visitors if not visitor.retired]
        for visitor in present[wanted:]:
            visitor.retired = True
        missing = wanted - len(present)
        if missing <= 0 or self._left <= 0 or not self._rows_left:
            return False
        for _ in range(min(missing, _AT_ONCE)):
            try:
                self._add(self._group.visitor())
            except NoMoreRows:
                self._rows_left = False
                return False
        return missing > _AT_ONCE

    def _add(self, visitor: Visitor) -> None:
        self._visitors[visitor] = None
        task = asyncio.ensure_future(self._live(visitor))
        self._tasks.add(task)
        task.add_done_callback(self._left_by)

    def _left_by(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()
        log_failure(task)

    async def _live(self, visitor: Visitor) -> None:
        group, plan, stop = self._group, self._plan, self._group.stop
        iterate = visitor.walker.iterate
        plain = plan.think is None and plan.pacing_s is None and plan.iterations is None and not group.renews
        try:
            async with group.present(visitor):
                if not await group.welcome(visitor):
                    self._out += 1
                    return
                turn = 0
                while not (stop.ending or visitor.retired):
                    if plain:
                        await iterate()
                    elif not await self._one(visitor):
                        break
                    turn += 1
                    if turn % _IN_A_ROW == 0:
                        await asyncio.sleep(0)
                group.leaving = group.leaving or not visitor.retired
                await group.goodbye(visitor)
        finally:
            del self._visitors[visitor]

    async def _one(self, visitor: Visitor) -> bool:
        """One iteration and the pause after it; whether the user goes on."""
        group, plan, stop = self._group, self._plan, self._group.stop
        if self._left <= 0:
            return False
        self._left -= 1
        if visitor.user.iteration and group.renews and not await group.renew(visitor):
            self._left += 1
            self._rows_left = False
            return False
        began = _now()
        await visitor.walker.iterate()
        if self._left > 0 and plan.think is not None:
            await stop.pause(visitor.user.random.uniform(*plan.think))
        if self._left > 0 and plan.pacing_s is not None:
            await stop.until(began + plan.pacing_s)
        return self._left > 0


class OpenExecutor:
    """Iterations that begin when they are due, whether or not earlier ones are done."""

    def __init__(self, group: WorkflowUsers) -> None:
        plan = group.plan
        assert plan.arrivals is not None
        self._group = group
        self._plan = plan
        self._due: Iterator[float] = group.due()
        self._ends = plan.arrivals.ends
        self._most = max(1, group.share.of(plan.max_in_flight))
        self._idle: list[Visitor] = []
        self._made = 0
        self._begun = False
        """whether any user could begin"""
        self._waiting: deque[float] = deque()
        self._tasks: dict[asyncio.Task[None], Visitor] = {}
        """iterations under way, with their users"""
        self._over = asyncio.Event()
        self._origin = 0.0
        """the start of the plan"""
        self._next = math.inf
        self._timer: Timer

    async def run(self, start: float) -> None:
        loop = asyncio.get_running_loop()
        self._origin = start - self._group.begin_s
        self._timer = Timer(loop, self._ring)
        stop = self._group.stop
        try:
            self._advance()
            self._ring()
            await either(self._over.wait(), stop.pause(_LONG_S))
            # the last arrival is due before the end
            await stop.pause(self._origin + self._ends - _now())
        finally:
            self._timer.close()
            stop.end(hurry=False)
            # arrivals that still wait do not begin after the end
            self._drop(len(self._waiting))
            self._waiting.clear()
            for task in await gone(set(self._tasks), self._plan.drain_s, stop):
                self._group.left_behind(self._tasks[task])
            leaving = {asyncio.ensure_future(self._group.goodbye(visitor)) for visitor in self._idle}
            for task in leaving:
                task.add_done_callback(log_failure)
            await gone(leaving, _LONG_S, stop)

    def _advance(self) -> None:
        due = next(self._due, None)
        self._next = math.inf if due is None else self._origin + due

    def _ring(self) -> None:
        """Start the arrivals that are due."""
        if self._group.stop.ending:
            return
        now = _now()
        while self._next <= now:
            self._arrive(self._next, now)
            self._advance()
        if math.isinf(self._next):
            self._over.set()
        else:
            self._timer.set(max(self._next, now + _GRAIN_S))

    def _arrive(self, due: float, now: float) -> None:
        group = self._group
        group.arrivals += 1
        if not self._plan.catch_up and now - due > _LATE_S:
            self._drop()
            return
        visitor = self._free()
        if visitor is not None:
            self._begin(visitor, due)
        elif self._plan.catch_up and len(self._waiting) < self._most * _BACKLOG:
            self._waiting.append(due)
        else:
            self._drop()

    def _drop(self, arrivals: int = 1) -> None:
        """Count dropped arrivals: too many are under way, or no user could ever begin."""
        self._group.dropped += arrivals
        if self._group.refusal and not self._begun:
            self._group.unbegun += arrivals

    def _free(self) -> Visitor | None:
        if self._idle:
            return self._idle.pop()
        if self._made >= self._most:
            return None
        try:
            visitor = self._group.visitor()
        except NoMoreRows:
            self._rows_end()
            return None
        self._made += 1
        return visitor

    def _rows_end(self) -> None:
        """There are no rows for further users; without any user, the run ends."""
        self._most = self._made
        if not self._made:
            self._group.stop.end(hurry=False)

    def _begin(self, visitor: Visitor, due: float) -> None:
        task = asyncio.ensure_future(self._visit(visitor, due))
        self._tasks[task] = visitor
        task.add_done_callback(self._left_by)

    def _left_by(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        log_failure(task)

    async def _visit(self, visitor: Visitor, due: float) -> None:
        """One iteration; then the visitor takes the next waiting arrival."""
        group = self._group
        begins = False
        try:
            async with group.present(visitor):
                if visitor.user.iteration == 0:
                    if not await group.welcome(visitor):
                        self._made -= 1
                        self._replace()
                        return
                    self._begun = True
                elif group.renews and not await group.renew(visitor):
                    self._made -= 1
                    self._rows_end()
                    group.leaving = True
                    await group.goodbye(visitor)
                    return
                begins = True
                await visitor.walker.iterate(max(0.0, _now() - due))
        finally:
            # also if it was cancelled before its iteration began
            if not begins:
                group.drop(visitor)
        if self._waiting and not group.stop.ending:
            self._begin(visitor, self._waiting.popleft())
        else:
            self._idle.append(visitor)

    def _replace(self) -> None:
        """Let a new user take the next waiting arrival, in place of one that could not begin."""
        if self._waiting and not self._group.stop.ending and (visitor := self._free()) is not None:
            self._begin(visitor, self._waiting.popleft())


async def either(one: Coroutine[Any, Any, Any], other: Coroutine[Any, Any, Any]) -> None:
    """Wait for the first of two; the other is cancelled."""
    tasks = {asyncio.ensure_future(one), asyncio.ensure_future(other)}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def gone(tasks: set[asyncio.Task[None]], within_s: float, stop: StopSignal) -> set[asyncio.Task[None]]:
    """Wait for tasks, up to a time limit or until the run is given up; then cancel them. Returns those that stay."""
    left = set(tasks)
    if left:
        await either(asyncio.wait(left, timeout=within_s), stop.given_up.wait())
        left = {task for task in left if not task.done()}
    latest = _now() + _LEAVE_S
    while left and _now() < min(latest, stop.given_up_at + _LEAVE_AT_ONCE_S):
        # more than once: a step may have swallowed the first cancellation
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=min(1.0, _LEAVE_S))
    if left:
        log.error("users=%s do not leave; a step of theirs ignores its cancellation", len(left))
    return left


def log_failure(task: asyncio.Task[None]) -> None:
    """Log an exception of a user's task. It is a bug of ours: exceptions of steps are counted."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a virtual user broke", exc_info=error)
