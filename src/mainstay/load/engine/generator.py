"""A generator: the part of a load test that one process runs, controlled by messages. `main` has the sockets."""

from __future__ import annotations

import asyncio
import math
import os
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from ...errors import CallFailed, InvalidInput, MainstayError
from ..blueprint import Blueprint, blueprint_of
from ..clients.network import Network, Timeouts, Tls
from ..clients.send_lease import SendLease
from ..feeders import Feed, feed_of
from ..plan import LoadOptions, RunPlan, WorkflowPlan
from ..sources import found_in
from ..stats.model import WINDOW_MS, StepStats, Window
from . import preflight
from .executors import either, executor_of
from .guard import error_text, guarded
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
    KeepAlive,
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

#: for messages that have arrived to be read
_READ_S = 0.2
#: how often the lease is looked at: timers do not run while the machine is suspended
_CHECK_S = 1.0
#: field of a window -> counter of a network
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
    """Runs workflows on command. `send` takes its messages, and must not block."""

    def __init__(self, send: Callable[[FromGenerator], None]) -> None:
        self._send = send
        self._networks: dict[str, Network] = {}
        """by workflow: each has its own limits"""
        self._plan: RunPlan
        self._options: LoadOptions
        self._share: ProcessShare
        self._blueprints: dict[str, Blueprint] = {}
        self._groups: dict[str, WorkflowUsers] = {}
        """the running ones, and the last ones, for the values that they provide"""
        self._once: dict[str, WorkflowUsers] = {}
        """for setups and teardowns"""
        self._set_up_here: set[str] = set()
        """workflows that this process has set up, or tried to"""
        self._metrics = MetricRecorder()
        self._bucket = 0
        """the open window"""
        self._together = 1
        self._held: list[WindowReport] = []
        """windows that wait for those that are sent with them"""
        self._calls: dict[str, int] = {}
        """sent, answered and aborted, as of the last window"""
        self._stopped: StopRun | None = None
        self._stopping = asyncio.Event()
        self._given_up = False
        self._tearing_down: asyncio.Timeout | None = None
        """the time limit of the running teardown"""
        self._feeds: dict[str, Feed | None] = {}
        self._lease = SendLease()

    async def handle(self, message: Any) -> None:
        """Handle a message. `StopRun`, `GiveUp` and `KeepAlive` may come at any time; the others come one after the
        other."""
        match message:
            case Begin():
                self._send(await self._begin(message))
            case SetUp(workflows, shared):
                self._send(await self._set_up(workflows, shared))
            case Go():
                self._send(await self._go(message))
            case StopRun():
                # it also applies to workflows that start later
                self._stopped = message
                self._stopping.set()
                self._end_groups()
            case GiveUp():
                self._give_up()
            case KeepAlive(until_s):
                self._lease.set(until_s)
            case CollectProvided(workflows):
                self._send(self._provided(workflows))
            case TearDown(workflows):
                self._send(await self._tear_down(workflows))

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
                # a fork that the file made and left running: it shares the event loop's descriptors with the generator,
                # and would take its events
                os._exit(0)
            self._plan = begin.plan
            if missing := [name for name in self._plan.workflows if name not in test.workflows]:
                rule = f"has no workflow {missing[0]!r} any more: it changed after the run was planned"
                raise InvalidInput(begin.name, f"{rule}; restart the worker")
            self._blueprints = {name: blueprint_of(test.workflows[name]) for name in self._plan.workflows}
            self._feeds = {name: _fed(blueprint) for name, blueprint in self._blueprints.items()}
            preflight.make_room(self._plan, self._blueprints, begin.processes)
            self._networks = {name: _network(options, plan, self._lease) for name, plan in self._plan.workflows.items()}
            for name, blueprint in self._blueprints.items():
                await self._prepare(blueprint, self._networks[name], self._plan.workflows[name].base_url)
            if options.preflight and begin.preflight:
                # the networks differ only in limits that do not matter here
                await preflight.look(self._plan, self._blueprints, next(iter(self._networks.values())))
        except InvalidInput as error:
            return BeginRefused(field=error.field, rule=error.rule)
        except CallFailed as error:
            return BeginRefused(field="proxy" if error.kind == "proxy" else "target", rule=str(error))
        except MainstayError as error:
            return BeginRefused(field="test", rule=str(error))
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - code of the test, at import
            reason = f"{type(error).__name__}: {error}"
            return BeginRefused(field="test", rule=f"cannot be loaded: {reason}", trace=traceback.format_exc())
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
            self._set_up_here.add(name)
            group = self._group(name, shared.get(name, {}), MetricRecorder())
            method = "__init__"
            try:
                me = group.visitor().walker.me
                self._once[name] = group
                values[name] = {}
                for method in self._blueprints[name].setups:
                    values[name][method] = as_data(await self._unless_stopped(getattr(me, method)()))
            except Exception as error:  # noqa: BLE001 - code of the test; reported, and the workflow does not run
                failed[name] = f"{method}: {error_text(error)}"
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

    async def _end_alone(self) -> None:
        """End the load when nothing may be sent any more: the collector was not able to stop it. It may be suspended,
        or this process was, with it."""
        while True:
            if self._lease.is_over():
                # a step may have blocked this process: what has arrived meanwhile is read first
                await asyncio.sleep(_READ_S)
                if self._lease.is_over():
                    self._give_up()
                    return
            await asyncio.sleep(max(0.0, min(_CHECK_S, self._lease.left_s)))

    async def _go(self, go: Go) -> WorkflowsDone:
        loop = asyncio.get_running_loop()
        self._groups = {
            name: self._group(name, go.shared.get(name, {}), self._metrics, go.begin_s, go.done.get(name, 0))
            for name in go.workflows
        }
        self._end_groups()
        self._lease.set(go.until_s)
        start = max(go.at, time.perf_counter())
        clock = Buckets(go.wall, go.at)
        await asyncio.sleep(max(0.0, start - time.perf_counter()))
        late_s = max(0.0, time.perf_counter() - go.at)
        monitor = HealthMonitor(loop)
        monitor.start()
        self._bucket = clock.now()
        self._together = go.together
        writing = asyncio.ensure_future(self._write_windows(clock, monitor))
        going = asyncio.gather(*(executor_of(group).run(start) for group in self._groups.values()))
        both: set[asyncio.Future[Any]] = {going, writing}
        watching = asyncio.ensure_future(self._end_alone())
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                writing.result()  # it never ends by itself: it broke, and a load without measurement is useless
            await going
        finally:
            monitor.stop()
            watching.cancel()
            self._lease.set(math.inf)
            for one in both:
                one.cancel()
            await asyncio.wait(both)
            if not going.cancelled():
                going.exception()  # retrieved: raised above, or not wanted any more
        self._send_windows(clock.now(), monitor)
        self._hold(WindowReport(self._window(self._bucket, monitor), self._draining()))
        self._send_held()
        reports = {
            name: WorkflowReport(
                iterations=group.notes.iterations,
                clean=group.notes.clean,
                account=group.account(),
                unmade=group.unmade,
                refusal=group.refusal,
                nothing_left=group.nothing_left,
            )
            for name, group in self._groups.items()
        }
        took = max((group.took(start) for group in self._groups.values()), default=0.0)
        loaded = max((group.loaded(start) for group in self._groups.values()), default=0.0)
        return WorkflowsDone(workflows=reports, took=took, loaded=loaded, late_s=late_s)

    async def _write_windows(self, clock: Buckets, monitor: HealthMonitor) -> None:
        while True:
            await asyncio.sleep(clock.left_of(self._bucket))
            self._send_windows(clock.now(), monitor)

    def _send_windows(self, now: int, monitor: HealthMonitor) -> None:
        """Send the finished windows: none, if the timer was a little early."""
        if now <= self._bucket:
            return
        self._hold(WindowReport(self._window(self._bucket, monitor), self._draining()))
        # a blocked loop missed some windows: nothing ended in them, but the users were present
        users = sum(group.active for group in self._groups.values())
        for missed in range(self._bucket + 1, now):
            self._hold(WindowReport(Window(bucket=missed, process=self._share.process, users=users)))
        self._bucket = now

    def _hold(self, report: WindowReport) -> None:
        self._held.append(report)
        if report.window.bucket % self._together == 0:
            self._send_held()

    def _send_held(self) -> None:
        # in one turn of the loop, so in one write
        held, self._held = self._held, []
        for report in held:
            self._send(report)

    def _draining(self) -> list[str]:
        return [name for name, group in self._groups.items() if group.draining]

    def _window(self, bucket: int, monitor: HealthMonitor) -> Window:
        groups = self._groups.values()
        steps = [stats for group in groups for step in group.notes.steps.values() if (stats := step.take())]
        checks = [results for group in groups for check in group.notes.checks.values() if (results := check.take())]
        calls = {name: sum(getattr(one, field) for one in self._networks.values()) for name, field in _CALLS.items()}
        before, self._calls = self._calls, calls
        window = Window(
            bucket=bucket,
            process=self._share.process,
            users=sum(group.take_users() for group in groups),
            **{name: count - before.get(name, 0) for name, count in calls.items()},
            steps=steps,
            checks=checks,
            metrics=self._metrics.take(),
            health={self._share.process: monitor.take()},
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

    def _provided(self, workflows: Sequence[str]) -> Values:
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
                except Exception as error:  # noqa: BLE001 - code of the test; reported, and dependants do not run
                    failed[name] = f"{state.name}: {error_text(error)}"
        return Values(values=values, failed=failed)

    async def _tear_down(self, workflows: Sequence[str]) -> Values:
        failed: dict[str, str] = {}
        for name in workflows:
            group = self._once.get(name)
            teardowns = self._blueprints[name].teardowns
            if group is None:
                if teardowns and name not in self._set_up_here:
                    # a replacement has nothing of what the setup kept
                    failed[name] = f"{teardowns[0]}: was not run: the process that had set up {name} was lost"
                continue
            for method in teardowns:
                try:
                    async with asyncio.timeout(LAST_ONCE_S if self._given_up else ONCE_S) as self._tearing_down:
                        await guarded(getattr(group.first, method)())
                except Exception as error:  # noqa: BLE001 - code of the test; reported in the summary
                    late = self._tearing_down is not None and self._tearing_down.expired()
                    failed[name] = f"{method}: {'was not done in time' if late else error_text(error)}"
                finally:
                    self._tearing_down = None
            await group.first.client.close()
        return Values(failed=failed)

    def _group(
        self, name: str, shared: Mapping[str, Any], metrics: MetricRecorder, begin_s: float = 0.0, done: int = 0
    ) -> WorkflowUsers:
        return WorkflowUsers(
            self._blueprints[name],
            self._plan.workflows[name],
            self._share,
            network=self._networks[name],
            shared=shared,
            params=self._options.params,
            metrics=metrics,
            feed=self._feeds[name],
            begin_s=begin_s,
            done=done,
        )


def _fed(blueprint: Blueprint) -> Feed | None:
    """Read the rows of a workflow; raises `InvalidInput` before the load."""
    try:
        feed = feed_of(blueprint.workflow.data)
        if feed is not None:
            feed.read()
    except InvalidInput as error:
        raise InvalidInput(f"{blueprint.name}.data", error.rule) from None
    return feed


class Buckets:
    """Numbers of windows, from the wall clock at the start and the monotonic clock since."""

    def __init__(self, wall: float, steady: float) -> None:
        self._offset = wall - steady

    def now(self) -> int:
        return int((time.perf_counter() + self._offset) * 1000 // WINDOW_MS)

    def left_of(self, bucket: int) -> float:
        """Seconds until the end of a bucket."""
        return max(0.0, (bucket + 1) * WINDOW_MS / 1000 - self._offset - time.perf_counter())


def as_data(value: Any) -> Any:
    """A value as other processes will read it; raises `InvalidInput`."""
    try:
        # encoded here, so that the error names the method that returned it
        return msgspec.msgpack.decode(msgspec.msgpack.encode(value))
    except (TypeError, ValueError, OverflowError, NotImplementedError, RecursionError) as error:
        raise InvalidInput(
            "value", f"a {type(value).__name__} cannot be encoded ({error}); return dicts, lists, text, numbers"
        ) from None


def _network(options: LoadOptions, plan: WorkflowPlan, lease: SendLease) -> Network:
    """The network that the users of a workflow share."""
    timeouts = Timeouts()
    if (limit := plan.timeout_s) is not None:
        timeouts = Timeouts(total=limit, read=limit, connect=min(limit, 10.0), write=min(limit, 10.0))
    tls = Tls(verify=options.verify, ca=options.ca, cert=options.cert, key=options.key)
    return Network(timeouts=timeouts, tls=tls, proxy=options.proxy, lease=lease)
