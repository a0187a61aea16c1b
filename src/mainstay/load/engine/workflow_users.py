"""The virtual users of one workflow in one process: created, run through their iterations, and closed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from ..blueprint import Blueprint
from ..clients.all import Clients
from ..clients.network import Network
from ..feeders import Feed, NoMoreRows
from ..pace import Arrivals
from ..plan import WorkflowPlan
from ..plan_shares import iterations_by_process
from ..shared_data import fixed
from ..stats.accounts import Account
from .guard import error_text, guarded
from .recorder import MetricRecorder
from .user import Hook, StepWalker, StopSignal, User, WorkflowRecorder

log = logging.getLogger("mainstay.load")

#: time limit of the `on_stop` of a user, and of closing its connections
_GOODBYE_S = 5.0


class ProcessShare:
    """The part of the load that this process produces."""

    __slots__ = ("process", "processes", "seed")

    def __init__(self, process: int, processes: int, seed: int) -> None:
        self.process = process
        self.processes = processes
        self.seed = seed

    def of(self, level: int) -> int:
        """The users of this process, of a total."""
        each, more = divmod(level, self.processes)
        return each + (self.process < more)


class Visitor:
    """A virtual user with its clients, and the walker that takes it through its steps."""

    __slots__ = ("clients", "retired", "walker")

    def __init__(self, walker: StepWalker, clients: Clients) -> None:
        self.walker = walker
        self.clients = clients
        self.retired = False

    @property
    def user(self) -> User:
        return self.walker.me.vu


class WorkflowUsers:
    """Creates the users of a workflow, and counts what they do."""

    def __init__(
        self,
        blueprint: Blueprint,
        plan: WorkflowPlan,
        share: ProcessShare,
        *,
        network: Network,
        shared: Mapping[str, Any],
        params: Mapping[str, str],
        metrics: MetricRecorder,
        feed: Feed | None = None,
        begin_s: float = 0.0,
        done: int = 0,
    ) -> None:
        """`begin_s` and `done`: the time of the plan at which this process continues it, and how many iterations of
        its share another process began before. Its users take the places of the lost ones: they are numbered from 0."""
        self.blueprint = blueprint
        self.plan = plan
        self.share = share
        self.begin_s = begin_s
        self.done = done
        self.stop = StopSignal()
        self.notes = WorkflowRecorder(blueprint, open_model=plan.arrivals is not None, metrics=metrics)
        self.active = 0
        """users at work"""
        self._most = 0
        self._began = False
        """whether any user began: a workflow without one has no end to report"""
        self.leaving = False
        """a user had no further iteration to begin"""
        self.arrivals = 0
        self.dropped = 0
        self.unbegun = 0
        """of the dropped ones: no user could begin"""
        self.unmade = 0
        """of a fixed number of iterations: those without a user, because users could not begin"""
        self.refused = 0
        """users that could not begin"""
        self.refusal = ""
        """the error of the first user that could not begin"""
        self.first: Any = None
        """the first user, whose values are provided to other workflows"""
        self._network = network
        self._shared = fixed(dict(shared))
        self._params = params
        self._metrics = metrics
        self._made = 0
        self._counted: dict[str, int] = {}
        self._uses = [state for state in blueprint.states if not state.provides]
        self._feed = feed
        self._row: Callable[[int], Any] | None = None
        if feed is not None:
            taken = self._rows_taken(feed)
            self._row = feed.dealt(process=share.process, processes=share.processes, seed=share.seed, taken=taken)

    def _rows_taken(self, feed: Feed) -> int:
        """How many rows of this process were taken before it continued the plan, as far as the plan tells.

        With a row for each iteration: as many as iterations of a fixed number had begun, or as arrivals were due. With
        a row for each user: as many as users of a closed model had begun. In the other two cases it is not known:
        users of a closed model begin after the rows of their first iterations, and those of an open one begin with the
        first row again. Where rows repeat, or are not split, this decides only which row is next.
        """
        plan, share = self.plan, self.share
        if feed.every == "iteration":
            if self.done:
                return self.done
            if plan.arrivals is not None:
                return math.ceil(plan.arrivals.area(self.begin_s) / share.processes)
        if plan.users is None or self.begin_s <= 0:
            return 0
        return share.of(round(plan.users.risen(self.begin_s)))

    @property
    def nothing_left(self) -> bool:
        """Whether it continued a plan of which nothing was left for this process."""
        return bool(self.begin_s or self.done) and not self._made and not self.arrivals

    @property
    def left(self) -> float:
        """How many iterations of a fixed number this process has to begin; infinite if there is no such number."""
        if self.plan.iterations is None:
            return math.inf
        share = self.share
        return max(0, iterations_by_process(self.plan, share.processes)[share.process] - self.done)

    def due(self) -> Iterator[float]:
        """The times of the plan at which arrivals of this process are due."""
        assert self.plan.arrivals is not None
        share = self.share
        arrivals = Arrivals(
            self.plan.arrivals,
            process=share.process,
            processes=share.processes,
            poisson=self.plan.poisson,
            seed=share.seed,
        )
        return arrivals.times(since=self.begin_s)

    def visitor(self) -> Visitor:
        """Create a user; raises `NoMoreRows`."""
        me = self.blueprint.workflow()
        user = User(
            number=self._made,
            process=self.share.process,
            processes=self.share.processes,
            metrics=self._metrics,
            seed=self.share.seed,
        )
        if self._row is not None:
            user.data = self._row(user.number)
        self._made += 1
        clients = Clients(self._network, base_url=self.plan.base_url)
        me.client = clients
        # the value of the run replaces that of the class, also for steps that build their own URLs
        vars(me)["base_url"] = self.plan.base_url
        me.vu = user
        me.params = self._params
        me.context = dict(self._shared)
        for state in self._uses:
            given = {name: self._shared[name] for name in state.taken if name in self._shared}
            setattr(me, state.name, functools.partial(getattr(me, state.name), **given))
        if self.first is None:
            self.first = me
        return Visitor(StepWalker(me, self.blueprint, self.notes, self._shared, self.stop), clients)

    def account(self) -> Account:
        """How all iterations so far ended."""
        notes = self.notes
        return Account(
            open=self.plan.arrivals is not None,
            arrivals=self.arrivals,
            dropped=self.dropped,
            begun=notes.begun,
            completed=notes.clean,
            failed=notes.iterations - notes.clean,
            aborted=notes.aborted,
        )

    def take_counts(self) -> dict[str, int]:
        """Counts since the last call, by the field names of a window."""
        notes = self.notes
        now = {
            "begun": notes.begun,
            "iterations": notes.iterations,
            "failed_iterations": notes.iterations - notes.clean,
            "aborted_iterations": notes.aborted,
            "arrivals": self.arrivals,
            "dropped": self.dropped,
            "unbegun": self.unbegun,
            # in an open model it is counted as an arrival without a user
            "refused_users": self.refused if self.plan.arrivals is None else 0,
        }
        before, self._counted = self._counted, now
        return {name: count - before.get(name, 0) for name, count in now.items()}

    def left_behind(self, visitor: Visitor) -> None:
        """The visitor ignores its cancellation: count its iteration as aborted, or its arrival as dropped."""
        if visitor.walker.under_way:
            self.notes.aborted += 1
        elif self.plan.arrivals is not None:
            self.drop(visitor)

    def drop(self, visitor: Visitor) -> None:
        """Open model: the arrival of this visitor is not started."""
        self.dropped += 1
        # a new user has not finished its on_start
        self.unbegun += visitor.user.iteration == 0

    @property
    def draining(self) -> bool:
        """Whether its end has begun: its users leave, and are not replaced."""
        return self.leaving or (self.stop.ending and self._began)

    def take_users(self) -> int:
        """The most users at a time since the last call: in an open model, most come and go in between."""
        most, self._most = self._most, self.active
        return most

    def took(self, start: float) -> float:
        """How long there was load: the planned time, longer if iterations took longer, less if it was stopped."""
        planned = self.stop.at
        if self.plan.duration_s is not None:
            planned = min(planned, start + max(0.0, self.plan.duration_s - self.begin_s))
        return max(self.notes.last, planned) - start

    def loaded(self, start: float) -> float:
        """How long iterations began, the base of rates. In a closed model users work until the last one has left; in an
        open one nothing arrives in the drain, which would make the rate look too low."""
        if self.plan.arrivals is None:
            return self.took(start)
        return max(0.0, min(self.stop.at, start + self.plan.arrivals.ends - self.begin_s) - start)

    @contextlib.asynccontextmanager
    async def present(self, visitor: Visitor) -> AsyncIterator[None]:
        """Count the visitor as active; if it is cancelled, close its connections."""
        self.active += 1
        self._most = max(self._most, self.active)
        try:
            yield
        except asyncio.CancelledError:
            await self.leave(visitor)
            raise
        finally:
            self.active -= 1

    async def welcome(self, visitor: Visitor) -> bool:
        """Run its `on_start`; whether it can begin."""
        for name in self.blueprint.on_starts:
            try:
                await guarded(getattr(visitor.walker.me, name)())
            except Exception as error:  # noqa: BLE001 - code of the test; counted, and this user does not begin
                self._broke("on_start", error)
                self.refused += 1
                self.refusal = self.refusal or error_text(error)
                await self.leave(visitor)
                return False
        self._began = True
        return True

    async def goodbye(self, visitor: Visitor) -> None:
        """Run its `on_stop`, and close it."""
        for name in self.blueprint.on_stops:
            try:
                async with asyncio.timeout(_GOODBYE_S):
                    await guarded(getattr(visitor.walker.me, name)())
            except Exception as error:  # noqa: BLE001 - code of the test; the user leaves anyway
                self._broke("on_stop", error)
        await self.leave(visitor)

    async def leave(self, visitor: Visitor) -> None:
        """Close its connections."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await visitor.clients.close()

    async def renew(self, visitor: Visitor) -> bool:
        """Between two iterations: a new session and the next row, if so planned. False: there is no further row."""
        if self.plan.new_session:
            await self.leave(visitor)
        if self._row is not None and self._feed is not None and self._feed.every == "iteration":
            try:
                visitor.user.data = self._row(visitor.user.number)
            except NoMoreRows:
                return False
        return True

    @property
    def renews(self) -> bool:
        """Whether there is anything to do between two iterations."""
        return self.plan.new_session or (self._feed is not None and self._feed.every == "iteration")

    def _broke(self, hook: Hook, error: Exception) -> None:
        self.notes.broke(hook, error)
        log.debug("workflow=%s hook=%s", self.blueprint.name, hook, exc_info=error)
