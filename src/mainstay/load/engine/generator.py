"""A generator: one process's part of a load test, told what to do by messages. No sockets here; see `main`."""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from ...errors import CallFailed, InvalidInput, MainstayError
from ..blueprint import Blueprint, blueprint_of
from ..clients.network import Network, Timeouts, Tls
from ..feeders import Feed, feed_of
from ..plan import LoadOptions, RunPlan, WorkflowPlan
from ..sources import found_in
from ..stats.model import WINDOW_MS, StepStats, Window
from . import preflight
from .executors import either, executor_of
from .guard import guarded, told_of
from .health import HealthMonitor
from .messages import (
    LAST_ONCE_S,
    ONCE_S,
    Begin,
    BeginRefused,
    CollectProvided,
    FromGenerator,
    GiveUp,
    Go,
    Ready,
    SetUp,
    StopRun,
    TearDown,
    Values,
    WindowReport,
    WorkflowReport,
    WorkflowsDone,
)  # fmt: skip
from .recorder import MetricRecorder
from .workflow_users import ProcessShare, WorkflowUsers

#: what a window has of calls -> how a network counts it
_CALLS = {
    "sent_calls": "sent",
    "answered_calls": "answered",
    "resent_calls": "resent",
    "unexpected": "unexpected",
    "aborted": "aborted",
    "aborted_sent": "aborted_sent",
    "aborted_received": "aborted_received",
}


class Generator:
    """Runs workflows as it is told. `say` takes what it has to say and does not wait."""

    def __init__(self, say: Callable[[FromGenerator], None]) -> None:
        self._say = say
        self._networks: dict[str, Network] = {}
        """by workflow: each has limits of its own"""
        self._plan: RunPlan
        self._options: LoadOptions
        self._share: ProcessShare
        self._blueprints: dict[str, Blueprint] = {}
        self._groups: dict[str, WorkflowUsers] = {}
        """those at work; and the last of each workflow, for what it provides"""
        self._once: dict[str, WorkflowUsers] = {}
        """what setup and teardown are called on"""
        self._metrics = MetricRecorder()
        self._bucket = 0
        """the window that is open"""
        self._calls: dict[str, int] = {}
        """sent, answered and aborted, as they were told last"""
        self._stopped: StopRun | None = None
        self._stopping = asyncio.Event()
        self._given_up = False
        self._tearing_down: asyncio.Timeout | None = None
        """the limit of the teardown that is under way"""
        self._feeds: dict[str, Feed | None] = {}

    async def handle(self, message: Any) -> None:
        """Do what is said. `StopRun` and `GiveUp` may come at any time; everything else comes one after the other."""
        match message:
            case Begin():
                self._say(await self._begin(message))
            case SetUp(workflows, shared):
                self._say(await self._set_up(workflows, shared))
            case Go():
                self._say(await self._go(message))
            case StopRun():
                # for good: what is said to be run after it is not run
                self._stopped = message
                self._stopping.set()
                self._end_groups()
            case GiveUp():
                self._give_up()
            case CollectProvided(workflows):
                self._say(self._give(workflows))
            case TearDown(workflows):
                self._say(await self._tear_down(workflows))

    def _give_up(self) -> None:
        self._given_up = True
        self._stopping.set()
        for group in self._groups.values():
            group.stop.give_up()
        if self._tearing_down is not None:
            self._tearing_down.reschedule(asyncio.get_running_loop().time() + LAST_ONCE_S)

    def _end_groups(self) -> None:
        if self._stopped is not None:
            for group in self._groups.values():
                group.stop.end(hurry=self._stopped.hurry)

    # before -----------------------------------------------------------------------------------------

    async def _begin(self, begin: Begin) -> FromGenerator:
        options = self._options = begin.options
        self._share = ProcessShare(begin.process, begin.processes, options.seed)
        me = os.getpid()
        try:
            test = found_in(begin.source, begin.name)
            if os.getpid() != me:
                # a clone, which the file made by a fork and left to run on: it shares what this loop waits on with the
                # generator, and would take the events that are meant for that
                os._exit(0)
            self._plan = begin.plan
            if missing := [name for name in self._plan.workflows if name not in test.workflows]:
                rule = f"has no workflow {missing[0]!r} any more: it changed after the run was planned"
                raise InvalidInput(begin.name, f"{rule}; restart the worker")
            self._blueprints = {name: blueprint_of(test.workflows[name]) for name in self._plan.workflows}
            self._feeds = {name: _fed(blueprint) for name, blueprint in self._blueprints.items()}
            preflight.make_room(self._plan, self._blueprints, begin.processes)
            self._networks = {name: _network(options, plan) for name, plan in self._plan.workflows.items()}
            for name, blueprint in self._blueprints.items():
                await self._prepare(blueprint, self._networks[name], self._plan.workflows[name].base_url)
            if options.preflight and begin.process == 0:
                # what they differ in is of no account here
                await preflight.look(self._plan, self._blueprints, next(iter(self._networks.values())))
        except InvalidInput as error:
            return BeginRefused(field=error.field, rule=error.rule)
        except CallFailed as error:
            return BeginRefused(field="proxy" if error.kind == "proxy" else "target", rule=str(error))
        except MainstayError as error:
            return BeginRefused(field="test", rule=str(error))
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - the user's own code, at import
            said = f"{type(error).__name__}: {error}"
            return BeginRefused(field="test", rule=f"cannot be loaded: {said}", trace=traceback.format_exc())
        return Ready()

    async def _prepare(self, blueprint: Blueprint, network: Network, base_url: str) -> None:
        for step in blueprint.steps.values():
            for argument, prepared in step.prepared.items():
                try:
                    await prepared.prepare(network, base_url)
                except InvalidInput as error:
                    raise InvalidInput(f"{blueprint.name}.{step.name}({argument})", error.rule) from None
                except CallFailed as error:
                    raise CallFailed(error.kind, f"{blueprint.name}.{step.name}({argument}): {error}") from None

    async def _set_up(self, workflows: Sequence[str], shared: Mapping[str, Mapping[str, Any]]) -> Values:
        values: dict[str, dict[str, Any]] = {}
        failed: dict[str, str] = {}
        for name in workflows:
            group = self._group(name, shared.get(name, {}), MetricRecorder())
            method = "__init__"
            try:
                me = group.visitor().walker.me
                self._once[name] = group
                values[name] = {}
                for method in self._blueprints[name].setups:
                    values[name][method] = as_data(await self._unless_stopped(getattr(me, method)()))
            except Exception as error:  # noqa: BLE001 - the user's own code; told, and the workflow is not run
                failed[name] = f"{method}: {told_of(error)}"
        return Values(values=values, failed=failed)

    async def _unless_stopped(self, work: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.ensure_future(guarded(work))
        await either(asyncio.wait([task], timeout=ONCE_S), self._stopping.wait())
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
            raise InvalidInput("setup", "was stopped" if self._stopped else f"took longer than {ONCE_S:g} s")
        return task.result()

    # the load ---------------------------------------------------------------------------------------

    async def _go(self, go: Go) -> WorkflowsDone:
        loop = asyncio.get_running_loop()
        self._groups = {name: self._group(name, go.shared.get(name, {}), self._metrics) for name in go.workflows}
        self._end_groups()
        start = max(go.at, time.perf_counter())
        clock = Buckets(go.wall, go.at)
        await asyncio.sleep(max(0.0, start - time.perf_counter()))
        watch = HealthMonitor(loop)
        watch.start()
        self._bucket = clock.now()
        writing = asyncio.ensure_future(self._write_windows(clock, watch))
        going = asyncio.gather(*(executor_of(group).run(start) for group in self._groups.values()))
        both: set[asyncio.Future[Any]] = {going, writing}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                writing.result()  # it never ends by itself: it broke, and a load that nobody measures is none
            await going
        finally:
            watch.stop()
            for one in both:
                one.cancel()
            await asyncio.wait(both)
            if not going.cancelled():
                going.exception()  # told above, or nobody wants it any more
        self._tell_windows(clock.now(), watch)
        self._say(WindowReport(self._window(self._bucket, watch), self._draining()))
        told = {
            name: WorkflowReport(
                iterations=group.notes.iterations,
                clean=group.notes.clean,
                account=group.account(),
                unmade=group.unmade,
                refusal=group.refusal,
            )
            for name, group in self._groups.items()
        }
        took = max((group.took(start) for group in self._groups.values()), default=0.0)
        loaded = max((group.loaded(start) for group in self._groups.values()), default=0.0)
        return WorkflowsDone(workflows=told, took=took, loaded=loaded)

    async def _write_windows(self, clock: Buckets, watch: HealthMonitor) -> None:
        while True:
            await asyncio.sleep(clock.left_of(self._bucket))
            self._tell_windows(clock.now(), watch)

    def _tell_windows(self, now: int, watch: HealthMonitor) -> None:
        """Those that are over: none, if it was woken a little early."""
        if now <= self._bucket:
            return
        self._say(WindowReport(self._window(self._bucket, watch), self._draining()))
        # a loop that was away for longer has missed some: nothing ended in them, and its users were there all the same
        users = sum(group.active for group in self._groups.values())
        for missed in range(self._bucket + 1, now):
            self._say(WindowReport(Window(bucket=missed, process=self._share.process, users=users)))
        self._bucket = now

    def _draining(self) -> list[str]:
        return [name for name, group in self._groups.items() if group.draining]

    def _window(self, bucket: int, watch: HealthMonitor) -> Window:
        groups = self._groups.values()
        steps = [found for group in groups for step in group.notes.steps.values() if (found := step.take())]
        checks = [seen for group in groups for check in group.notes.checks.values() if (seen := check.take())]
        counted = {name: sum(getattr(one, field) for one in self._networks.values()) for name, field in _CALLS.items()}
        before, self._calls = self._calls, counted
        window = Window(
            bucket=bucket,
            process=self._share.process,
            users=sum(group.take_users() for group in groups),
            **{name: count - before.get(name, 0) for name, count in counted.items()},
            steps=steps,
            checks=checks,
            metrics=self._metrics.take(),
            health={self._share.process: watch.take()},
        )
        for group in groups:
            notes = group.notes
            for name, count in group.take_counts().items():
                setattr(window, name, getattr(window, name) + count)
            for hook, kinds in notes.broken.items():
                window.steps.append(StepStats(workflow=group.plan.name, step=hook, errors=kinds))
            notes.broken = {}
            window.examples.update(notes.examples)
            notes.examples = {}
        return window

    # after ------------------------------------------------------------------------------------------

    def _give(self, workflows: Sequence[str]) -> Values:
        values: dict[str, dict[str, Any]] = {}
        failed: dict[str, str] = {}
        for name in workflows:
            group = self._groups.get(name)
            if group is None or group.first is None:
                continue
            for state in self._blueprints[name].states:
                if not state.provides:
                    continue
                try:
                    values.setdefault(name, {})[state.name] = as_data(getattr(group.first, state.name)())
                except Exception as error:  # noqa: BLE001 - the user's own code; told, and who needs it is not run
                    failed[name] = f"{state.name}: {told_of(error)}"
        return Values(values=values, failed=failed)

    async def _tear_down(self, workflows: Sequence[str]) -> Values:
        failed: dict[str, str] = {}
        for name in workflows:
            group = self._once.get(name)
            if group is None:
                continue
            for method in self._blueprints[name].teardowns:
                try:
                    async with asyncio.timeout(LAST_ONCE_S if self._given_up else ONCE_S) as self._tearing_down:
                        await guarded(getattr(group.first, method)())
                except Exception as error:  # noqa: BLE001 - the user's own code; told in the summary
                    late = self._tearing_down is not None and self._tearing_down.expired()
                    failed[name] = f"{method}: {'was not done in time' if late else told_of(error)}"
                finally:
                    self._tearing_down = None
            await group.first.client.close()
        return Values(failed=failed)

    def _group(self, name: str, shared: Mapping[str, Any], metrics: MetricRecorder) -> WorkflowUsers:
        return WorkflowUsers(
            self._blueprints[name],
            self._plan.workflows[name],
            self._share,
            network=self._networks[name],
            shared=shared,
            params=self._options.params,
            metrics=metrics,
            feed=self._feeds[name],
        )


def _fed(blueprint: Blueprint) -> Feed | None:
    """The rows of a workflow, read: what cannot be read is refused before the load."""
    try:
        feed = feed_of(blueprint.workflow.data)
        if feed is not None:
            feed.read()
    except InvalidInput as error:
        raise InvalidInput(f"{blueprint.name}.data", error.rule) from None
    return feed


class Buckets:
    """Numbers of windows, from the wall clock as it was at the start and the steady one since."""

    def __init__(self, wall: float, steady: float) -> None:
        self._offset = wall - steady

    def now(self) -> int:
        return int((time.perf_counter() + self._offset) * 1000 // WINDOW_MS)

    def left_of(self, bucket: int) -> float:
        """Seconds until it is over."""
        return max(0.0, (bucket + 1) * WINDOW_MS / 1000 - self._offset - time.perf_counter())


def as_data(value: Any) -> Any:
    """What can be handed to other processes; raises `InvalidInput`."""
    try:
        # as it will be read there: what cannot travel is noticed here, where it was made
        return msgspec.msgpack.decode(msgspec.msgpack.encode(value))
    except (TypeError, ValueError, OverflowError, NotImplementedError, RecursionError) as error:
        raise InvalidInput(
            "value", f"a {type(value).__name__} cannot be stored as data ({error}); return dicts, lists, text, numbers"
        ) from None


def _network(options: LoadOptions, plan: WorkflowPlan) -> Network:
    """What the users of a workflow share."""
    timeouts = Timeouts()
    if (limit := plan.timeout_s) is not None:
        timeouts = Timeouts(total=limit, read=limit, connect=min(limit, 10.0), write=min(limit, 10.0))
    tls = Tls(verify=options.verify, ca=options.ca, cert=options.cert, key=options.key)
    return Network(timeouts=timeouts, tls=tls, proxy=options.proxy)
