"""How users are sent: a number of them that loop (closed), or arrivals by the clock (open)."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Coroutine, Iterator
from typing import Any, Protocol

from ..feeders import NoMoreRows
from ..pace import Arrivals, Ramp, shares, weighted
from .timer import Timer
from .user import StopSignal
from .workflow_users import Visitor, WorkflowUsers

log = logging.getLogger("mainstay.load")

_now = time.perf_counter

#: how long a user that was given up may take to leave
_LEAVE_S = 10.0
#: the same, when nobody waits for the run any longer
_LEAVE_AT_ONCE_S = 2.0
#: for ever, as far as a timer goes
_LONG_S = 1e6

#: users that are started in one turn, so that thousands do not all connect in the same instant
_AT_ONCE, _TURN_S = 200, 0.01
_TICK_S = 0.1
#: a user that never waits must let others have their turn now and then
_IN_A_ROW = 64
#: arrivals nearer to each other than this are started together
_GRAIN_S = 0.00005
#: without catch-up, what is later than this is dropped
_LATE_S = 0.01
#: waiting arrivals, in iterations that may be under way
_BACKLOG = 10


class Executor(Protocol):
    """Runs a group from its start to its end."""

    async def run(self, start: float) -> None:
        """Returns when its time is over or it was told to stop, and every user has left. `start`: perf_counter."""
        ...


def executor_of(group: WorkflowUsers) -> Executor:
    return ClosedExecutor(group) if group.plan.arrivals is None else OpenExecutor(group)


class ClosedExecutor:
    """A number of users over time; each begins anew when it is done. Also for a fixed number of iterations."""

    def __init__(self, group: WorkflowUsers) -> None:
        self._group = group
        self._plan = group.plan
        self._tasks: set[asyncio.Task[None]] = set()
        self._visitors: dict[Visitor, None] = {}
        """those who are here, the first to come first"""
        self._changed = asyncio.Event()
        self._left = _own_iterations(group)
        """iterations that nobody has begun"""
        self._out = 0
        """users that could not begin; nobody takes their place"""
        self._rows_left = True

    async def run(self, start: float) -> None:
        plan, stop = self._plan, self._group.stop
        assert plan.users is not None
        ramp = plan.users
        steady = len({level for _, level in ramp.points}) == 1
        ends = start + ramp.ends
        try:
            while not stop.ending and (now := _now()) < ends:
                # timers may ring a moment early, and before the start there is nobody: all would be over at once
                missing = self._adjust(ramp, max(0.0, now - start))
                if steady and not self._tasks:
                    # nobody is here, and nobody will come
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
        """The end, or a user that left: there may be nobody left then."""
        self._changed.clear()
        await either(self._changed.wait(), self._group.stop.pause(min(ends - _now(), _LONG_S)))

    def _adjust(self, ramp: Ramp, elapsed: float) -> bool:
        """Towards as many as there should be now; whether more are still to come."""
        wanted = max(0, self._group.share.of(round(ramp.level(elapsed))) - self._out)
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
        told(task)

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
        """An iteration and what comes between two; whether it goes on."""
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


def _own_iterations(group: WorkflowUsers) -> float:
    """This process's part of a fixed number, by its part of the users, so that each user of the run has as many to do
    as any other. The users of a process take them from one stock; processes do not ask each other for more, which would
    cost a message for each iteration."""
    plan, share = group.plan, group.share
    if plan.iterations is None or plan.users is None:
        return math.inf
    users = shares(max(1, round(plan.users.highest)), share.processes)
    return weighted(plan.iterations, users)[share.process]


class OpenExecutor:
    """Iterations that begin when they are due, whether or not those before them are done."""

    def __init__(self, group: WorkflowUsers) -> None:
        plan = group.plan
        assert plan.arrivals is not None
        self._group = group
        self._plan = plan
        self._due: Iterator[float] = Arrivals(
            plan.arrivals,
            process=group.share.process,
            processes=group.share.processes,
            poisson=plan.poisson,
            seed=group.share.seed,
        ).times()
        self._ends = plan.arrivals.ends
        self._most = max(1, group.share.of(plan.max_in_flight))
        self._idle: list[Visitor] = []
        self._made = 0
        self._begun = False
        """whether any user could begin"""
        self._waiting: deque[float] = deque()
        self._tasks: dict[asyncio.Task[None], Visitor] = {}
        """iterations under way, and who is at them"""
        self._over = asyncio.Event()
        self._start = 0.0
        self._next = math.inf
        self._timer: Timer

    async def run(self, start: float) -> None:
        loop = asyncio.get_running_loop()
        self._start = start
        self._timer = Timer(loop, self._ring)
        stop = self._group.stop
        try:
            self._advance()
            self._ring()
            await either(self._over.wait(), stop.pause(_LONG_S))
            # the last one is due before the end
            await stop.pause(start + self._ends - _now())
        finally:
            self._timer.close()
            stop.end(hurry=False)
            # what was due and never began is not begun after the end
            self._drop(len(self._waiting))
            self._waiting.clear()
            for task in await gone(set(self._tasks), self._plan.drain_s, stop):
                self._group.left_behind(self._tasks[task])
            leaving = {asyncio.ensure_future(self._group.goodbye(visitor)) for visitor in self._idle}
            for task in leaving:
                task.add_done_callback(told)
            await gone(leaving, _LONG_S, stop)

    def _advance(self) -> None:
        due = next(self._due, None)
        self._next = math.inf if due is None else self._start + due

    def _ring(self) -> None:
        """Start what is due."""
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
        """There is no room for them; or there would be, if those who take it could ever begin."""
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
        """There is data for nobody else; with nobody left, it is over."""
        self._most = self._made
        if not self._made:
            self._group.stop.end(hurry=False)

    def _begin(self, visitor: Visitor, due: float) -> None:
        task = asyncio.ensure_future(self._visit(visitor, due))
        self._tasks[task] = visitor
        task.add_done_callback(self._left_by)

    def _left_by(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        told(task)

    async def _visit(self, visitor: Visitor, due: float) -> None:
        """An iteration; whoever is done with it takes the next that waits."""
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
            # also when it was given up before its iteration could begin
            if not begins:
                group.drop(visitor)
        if self._waiting and not group.stop.ending:
            self._begin(visitor, self._waiting.popleft())
        else:
            self._idle.append(visitor)

    def _replace(self) -> None:
        """A user has left its place, and nobody has it: another takes the next that waits."""
        if self._waiting and not self._group.stop.ending and (visitor := self._free()) is not None:
            self._begin(visitor, self._waiting.popleft())


async def either(one: Coroutine[Any, Any, Any], other: Coroutine[Any, Any, Any]) -> None:
    """Whichever is first; the other is given up."""
    tasks = {asyncio.ensure_future(one), asyncio.ensure_future(other)}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def gone(tasks: set[asyncio.Task[None]], within_s: float, stop: StopSignal) -> set[asyncio.Task[None]]:
    """All of them; or their time is over, or the run waits no longer, and they are given up: those that stay all the
    same."""
    left = set(tasks)
    if left:
        await either(asyncio.wait(left, timeout=within_s), stop.given_up.wait())
        left = {task for task in left if not task.done()}
    latest = _now() + _LEAVE_S
    while left and _now() < min(latest, stop.given_up_at + _LEAVE_AT_ONCE_S):
        # more than once: a step may have taken the first for something else
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=min(1.0, _LEAVE_S))
    if left:
        log.error("users=%s do not leave; a step of theirs takes no cancellation", len(left))
    return left


def told(task: asyncio.Task[None]) -> None:
    """What leaves a user's task is a mistake of ours: what steps raise is counted."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a virtual user broke", exc_info=error)
