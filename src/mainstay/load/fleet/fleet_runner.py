"""The leader of a fleet: slices on several machines behind the port of one load runner."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Self

import msgspec

from ...bus import Bus, BusMessage, Subscription
from ...clock import Clock, SystemClock
from ...errors import InvalidInput
from ..engine.messages import (
    CollectProvided,
    GiveUp,
    SetUp,
    StartInstant,
    StopRun,
    TearDown,
    Values,
    WorkflowsDone,
)
from ..generator_process import GeneratorLost, Limits, LineHandler
from ..run_spec import RunOrder
from ..stats.model import SliceReport, Window
from .assignments import SliceAssignments
from .messages import (
    CollectEnd,
    KillSlice,
    PrepareSlice,
    SliceEnd,
    SliceOrder,
    StartSlice,
    decode_lines,
    decode_window,
    line_subject,
    window_subject,
)
from .record import FleetRecord
from .settings import FleetMember, FleetSettings
from .slice_link import SliceLink
from .slice_merger import SliceMerger
from .spec import OnLoss

#: windows that wait to be merged; slices keep those that are dropped here
_WAITING = 10_000
#: round trips before the first start
_ROUND_TRIPS = 5
#: to end all processes
_RELEASE_S = 10.0


class FleetRunner:
    """Slices on several machines: a `LoadRunner`. `functools.partial(FleetRunner, bus=..., job=..., slices=..., ...)` makes
    those of a `LoadRun`.

    The services of the members may start later; `prepare` waits for them. `epoch` is that of the leader: slices refuse
    one that is older than another that they have heard. `reports` has the facts of each slice, and `notes` what a
    reader of the result must know."""

    def __init__(
        self,
        processes: int,
        on_window: Callable[[Window], None],
        *,
        on_line: LineHandler = lambda _, __: None,
        limits: Limits | None = None,
        bus: Bus,
        job: str,
        slices: Sequence[int],
        assignments: SliceAssignments,
        epoch: int,
        record: FleetRecord,
        save: Callable[[FleetRecord], Awaitable[None]],
        on_loss: OnLoss = "replace",
        settings: FleetSettings | None = None,
        clock: Clock | None = None,
        steady: Callable[[], float] | None = None,
    ) -> None:
        """`slices` has the cores of each. `save` stores the record durably, or raises; a record that is not empty is
        that of a leader before this one. `steady` is the clock that slices are compared with; the default is that of
        the event loop."""
        if sum(slices) != processes:
            raise InvalidInput("slices", f"they have {sum(slices)} processes, and the run has {processes}")
        self._slices = list(slices)
        self._assignments = assignments
        self._epoch = epoch
        self._record, self._save, self._on_loss = record, save, on_loss
        self._bus = bus
        self._job = job
        self._limits = limits or Limits()
        self._settings = settings = settings or FleetSettings()
        self._clock = clock or SystemClock()
        self._steady = steady or (lambda: asyncio.get_running_loop().time())
        self._on_line = on_line
        self._merger = SliceMerger(len(slices), on_window, hold_s=settings.hold_s, now=self._steady)
        self._links: list[SliceLink] = []
        self._go = 0
        self._killed = False
        self._failure: BaseException | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._subscriptions: list[Subscription[BusMessage]] = []
        self.ended: asyncio.Future[None]

    def _link(self, number: int, member: FleetMember, epoch: int) -> SliceLink:
        return SliceLink(
            self._bus,
            member,
            job=self._job,
            number=number,
            epoch=epoch,
            settings=self._settings,
            clock=self._clock,
            steady=self._steady,
            on_window=lambda window: self._merger.add(number, window),
            on_change=self._check_ended,
        )

    async def __aenter__(self) -> Self:
        self.ended = asyncio.get_running_loop().create_future()
        for subject, take in (
            (window_subject("*", self._job, "*"), self._take_windows),
            (line_subject("*", self._job, "*"), self._take_lines),
        ):
            self._subscriptions.append(await self._bus.subscribe(subject, limit=_WAITING))
            self._run(take(self._subscriptions[-1]))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Release all slices. One that cannot be reached ends by itself."""
        releases = [asyncio.ensure_future(link.release()) for link in self._links]
        try:
            if releases:
                await asyncio.wait(releases, timeout=_RELEASE_S)
        finally:
            for task in (*releases, *self._tasks):
                task.cancel()
            await asyncio.gather(*releases, *self._tasks, return_exceptions=True)
            for subscription in self._subscriptions:
                await subscription.close()
            if not self.ended.done():
                self.ended.set_result(None)

    # the port ---------------------------------------------------------------------------------------

    async def prepare(self, order: RunOrder) -> None:
        """Have every slice load the test. Raises `InvalidInput` if one refuses it, and `GeneratorLost` with the name of
        each slice that is not ready in time."""
        for number in range(len(self._slices)):
            member = await self._assignments.after(number, 0)
            self._links.append(self._link(number, member, self._epoch))
            self._run(self._links[-1].keep_contact())
        first, of = 0, sum(link.member.processes for link in self._links)
        tasks: dict[asyncio.Task[None], SliceLink] = {}
        for link in self._links:
            processes = link.member.processes
            part = PrepareSlice(order=order, limits=self._limits, processes=processes, first=first, of=of)
            tasks[asyncio.ensure_future(self._prepare(link, part))] = link
            first += processes
        try:
            done, late = await asyncio.wait(tasks, timeout=self._settings.ready_s, return_when=asyncio.FIRST_EXCEPTION)
            failed = {tasks[task].number: error for task in done if (error := task.exception()) is not None}
        finally:
            for task in tasks:
                task.cancel()
        refusals = [error for _, error in sorted(failed.items()) if isinstance(error, InvalidInput)]
        if refusals:
            raise refusals[0]
        if not failed:
            limit_s = self._settings.ready_s
            failed = {
                tasks[task].number: tasks[task].not_done(f"it was not ready within {limit_s:g} s") for task in late
            }
        if failed:
            raise GeneratorLost(f"not all slices are ready: {_reasons(failed)}")

    async def _prepare(self, link: SliceLink, order: PrepareSlice) -> None:
        await link.ask(order, doing="it was preparing (it loads the test and looks up its hosts)")
        while len(link.peer_clock) < _ROUND_TRIPS:
            await link.ping()

    async def set_up(self, workflows: Sequence[str], shared: dict[str, dict[str, Any]], *, calls: int) -> Values:
        """Run the setups, in the first slice."""
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
        """Run workflows in all slices, from one instant on. If a slice does not confirm it, all stop."""
        for link in self._links:
            if loss := link.loss or (link.not_done("none of its processes is left") if link.is_over else None):
                return [], loss
        self._go += 1
        self._merger.open()
        for link in self._links:
            link.open(self._go)
        ahead_s = max(self._settings.ahead_s, *(4 * link.peer_clock.round_trip_s for link in self._links))
        start = start or StartInstant(after_s=ahead_s, wall=self._clock.now_ms() / 1000 + ahead_s)
        at_s = self._steady() + start.after_s
        order = StartSlice(
            go=self._go,
            workflows=list(workflows),
            shared=shared,
            at_s=at_s,
            wall=start.wall,
            begin_s=start.begin_s,
            longest_s=longest_s,
            drain_s=drain_s,
        )
        ticking = self._run(self._tick())
        try:
            refused, unstarted = await self._start_all(order, at_s + self._settings.confirm_s)
            if unstarted:
                self.stop(hurry=True)
            for number in refused:
                self._merger.close(number)
            ends = await asyncio.gather(*(self._end_of(link) for link in self._links if link.number not in refused))
        finally:
            ticking.cancel()
        if self._failure is not None:
            raise self._failure
        losses = [GeneratorLost(f"not started together: {unstarted}")] if unstarted else []
        losses += [loss for _, loss in ends if loss is not None]
        return [report for reports, _ in ends for report in reports], losses[0] if losses else None

    def stop(self, *, hurry: bool) -> None:
        self._tell_all(StopRun(hurry))

    def give_up(self) -> None:
        self._lose_sooner()
        self._tell_all(GiveUp())

    def kill(self) -> None:
        self._killed = True
        self._lose_sooner()
        self._tell_all(KillSlice())

    async def collect_provided(self, workflows: Sequence[str], *, calls: int) -> Values:
        """What these workflows provide, in the first slice."""
        doing = f"it collected what {', '.join(workflows)} provides"
        return await self._first(CollectProvided(list(workflows)), doing, calls)

    async def tear_down(self, workflows: Sequence[str], *, calls: int) -> Values:
        return await self._first(TearDown(list(workflows)), f"it tore down {', '.join(workflows)}", calls)

    # for those who report the run -------------------------------------------------------------------

    def lose(self, number: int, why: str) -> None:
        """Count a slice as lost now: it is known that its machine has ended."""
        self._links[number].lose(why)

    def reports(self) -> list[SliceReport]:
        """The facts of each slice so far."""
        return [
            SliceReport(
                slice=link.number,
                node=link.member.node,
                token=link.member.token,
                processes=link.member.processes,
                clock_doubt_s=link.peer_clock.doubt_s if len(link.peer_clock) else None,
                start_late_s=link.start_late_s,
                windows=link.received,
                late_windows=self._merger.late[link.number],
                repaired_windows=link.repaired,
                repeated_windows=link.repeated,
                loss="" if link.loss is None else str(link.loss),
            )
            for link in self._links
        ]

    @property
    def start_skew_s(self) -> float:
        """How far apart the slices started at most: what they measured, and the doubt about their clocks."""
        late = [link.start_late_s for link in self._links]
        return max(late) - min(late) + 2 * max(link.peer_clock.doubt_s for link in self._links)

    @property
    def notes(self) -> list[str]:
        """Doubts about clocks and starts."""
        settings = self._settings
        notes = [
            f"the clock of {link.name} is uncertain by {1000 * link.peer_clock.doubt_s:.0f} ms"
            for link in self._links
            if settings.doubt_s < link.peer_clock.doubt_s < math.inf
        ]
        if self._go and settings.skew_s < self.start_skew_s < math.inf:
            notes.append(f"the slices started up to {1000 * self.start_skew_s:.0f} ms apart")
        return notes

    # within -----------------------------------------------------------------------------------------

    async def _start_all(self, order: StartSlice, until_s: float) -> tuple[set[int], str]:
        """Order all slices to go. Returns those that have refused, and why not all have started; empty if they have."""
        tasks = {asyncio.ensure_future(self._start(link, order)): link for link in self._links}
        try:
            done, late = await asyncio.wait(
                tasks, timeout=until_s - self._steady(), return_when=asyncio.FIRST_EXCEPTION
            )
        finally:
            for task in tasks:
                task.cancel()
        failed = {tasks[task].number: error for task in done if (error := task.exception()) is not None}
        refused = set(failed)
        if not failed:
            rule = f"it had not confirmed the start {self._settings.confirm_s:g} s after it"
            failed = {tasks[task].number: tasks[task].not_done(rule) for task in late}
        return refused, _reasons(failed)

    async def _start(self, link: SliceLink, order: StartSlice) -> None:
        own = msgspec.structs.replace(order, at_s=order.at_s + link.peer_clock.offset_s)
        # an order that was lost should be repeated before the instant
        answer_s = max(0.1, 2 * link.peer_clock.round_trip_s)
        await link.ask(own, doing="it was under load", answer_s=answer_s)

    async def _end_of(self, link: SliceLink) -> tuple[list[WorkflowsDone], GeneratorLost | None]:
        """The end of the go in one slice, with all its windows. If something was lost there, all stop: without it, the
        others do not produce the requested load."""
        reports: list[WorkflowsDone] = []
        try:
            end = await link.ask(CollectEnd(self._go))
            if not isinstance(end, SliceEnd):
                raise link.not_done(f"it answered with {type(end).__name__}")
            reports = end.reports
            link.start_late_s = max((report.late_s for report in reports), default=0.0)
            await link.receive_all(end.windows)
            if end.isolated:
                limit_s = self._settings.isolation_s
                raise link.not_done(f"it had no contact for {limit_s:g} s, and stopped its load")
            if end.loss:
                raise link.not_done(end.loss)
        except GeneratorLost as error:
            if not self._killed:
                self.stop(hurry=True)
            return reports, error
        finally:
            self._merger.close(link.number)
        return reports, None

    async def _first(self, order: SliceOrder, doing: str, calls: int) -> Values:
        answer = await self._links[0].ask(order, doing=doing, calls=calls)
        if not isinstance(answer, Values):
            raise self._links[0].not_done(f"it answered with {type(answer).__name__}, while {doing}")
        return answer

    def _tell_all(self, order: StopRun | GiveUp | KillSlice) -> None:
        for link in self._links:
            self._run(self._tell(link, order))

    async def _tell(self, link: SliceLink, order: StopRun | GiveUp | KillSlice) -> None:
        with contextlib.suppress(GeneratorLost):
            await link.ask(order)

    def _lose_sooner(self) -> None:
        for link in self._links:
            link.hurry()

    def _check_ended(self) -> None:
        if not self.ended.done() and all(link.is_over or link.loss is not None for link in self._links):
            self.ended.set_result(None)

    async def _take_windows(self, messages: Subscription[BusMessage]) -> None:
        async for message in messages:
            if (link := self._link_of(message)) is not None:
                with contextlib.suppress(msgspec.MsgspecError):
                    link.take(decode_window(message.body))

    async def _take_lines(self, messages: Subscription[BusMessage]) -> None:
        async for message in messages:
            with contextlib.suppress(msgspec.MsgspecError):
                for process, line in decode_lines(message.body).lines:
                    self._on_line(process, line)

    def _link_of(self, message: BusMessage) -> SliceLink | None:
        number = message.subject.rpartition(".")[2]
        return self._links[int(number)] if number.isdecimal() and int(number) < len(self._links) else None

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._settings.hold_s / 5)
            self._merger.tick()

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # a bug of ours: what was measured would be lost
            self._failure = error
            self.stop(hurry=True)


def _reasons(failed: dict[int, BaseException]) -> str:
    return "; ".join(str(error) for _, error in sorted(failed.items()))


__all__ = ["FleetRunner"]
