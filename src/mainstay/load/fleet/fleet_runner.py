"""The leader of a fleet: slices on several machines behind the port of one load runner."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Self, TypeVar

from ...bus import LEVELS, Admission, Bus, BusMessage, MessageClass, Subscription
from ...clock import Clock, SystemClock
from ...errors import InvalidInput, StaleClaim
from ...event_loop import steady_clock
from ..engine.messages import GiveUp, StartInstant, StopRun, Values, WorkflowsDone
from ..generator_process import GeneratorLost, Limits, LineHandler
from ..run_spec import RunOrder
from ..stats.model import SliceReport, Window
from .assignments import SliceAssignments
from .fleet_context import FleetContext
from .fleet_go import FleetGo
from .fleet_load import FleetLoad
from .fleet_reports import FleetReports, start_skew_s
from .led_slice import LedSlice
from .messages import UNREADABLE, CommandAccepted, KillSlice, decode_lines, decode_windows, line_subject, window_subject
from .once_orders import OnceOrders
from .record import FleetRecord
from .settings import RELEASE_S, FleetSettings
from .slice_link import SliceLink
from .slice_merger import SliceMerger
from .spec import OnLoss
from .together import buckets_together

log = logging.getLogger("mainstay.load")

T = TypeVar("T")

#: windows that wait to be merged; slices keep those that are dropped here
_WAITING = 500


class FleetRunner:
    """Slices on several machines: a `LoadRunner`. `functools.partial(FleetRunner, bus=..., job=..., slices=..., ...)`
    makes those of a `LoadRun`.

    Machines come from `assignments`, at any time; `prepare` waits for them. A slice that is lost under load is treated
    as `on_loss` says: `replace` continues its plan on its next machine, `continue` runs on without it, `fail` and
    `restart` stop all (`RestartNeeded`).

    The run outlives its leader. `record` has what the next one must know; with it and a higher `epoch`, a new
    `FleetRunner` leads the same run again from its beginning: what was done is answered from the record, and a load
    that is under way is adopted. Slices refuse a leader that is older than another that they have heard: its calls
    raise `StaleClaim` then. `leave` gives the run to a successor without waiting for that."""

    def __init__(
        self,
        processes: int,
        on_window: Callable[[Window], None],
        *,
        on_line: LineHandler = lambda _, __: None,
        limits: Limits | None = None,
        bus: Bus,
        data_bus: Bus | None = None,
        job: str,
        slices: Sequence[int],
        assignments: SliceAssignments,
        epoch: int,
        record: FleetRecord,
        save: Callable[[FleetRecord], Awaitable[None]],
        on_loss: OnLoss = "replace",
        releases_at_exit: bool = True,
        settings: FleetSettings | None = None,
        clock: Clock | None = None,
        steady: Callable[[], float] | None = None,
        admission: Admission | None = None,
    ) -> None:
        """`slices` has the cores of each. Windows and printed lines arrive on `data_bus`, by default the same as `bus`.
        `save` stores the record durably, or raises: then this leader leaves. With `releases_at_exit=False`, slices are
        released by `release`, for example when the result is stored. `steady` is the clock that slices are compared
        with; the default is that of the event loop. `admission` knows how overloaded this process is: then slices send
        fewer and wider windows, and printed lines are dropped."""
        if sum(slices) != processes:
            raise InvalidInput("slices", f"they have {sum(slices)} processes, and the run has {processes}")
        settings = settings or FleetSettings()
        steady = steady or steady_clock()
        self._data_bus = data_bus or bus
        self._on_line = on_line
        self._releases_at_exit = releases_at_exit
        self._merger = SliceMerger(len(slices), on_window, hold_s=settings.hold_s, now=steady)
        self._fleet = FleetContext(
            bus=bus,
            job=job,
            epoch=epoch,
            assignments=assignments,
            record=record,
            save=save,
            on_loss=on_loss,
            limits=limits or Limits(),
            settings=settings,
            clock=clock or SystemClock(),
            steady=steady,
            merger=self._merger,
        )
        firsts = [sum(slices[:number]) for number in range(len(slices))]
        self._slices = [
            LedSlice(self._fleet, number, count, first=firsts[number], of=processes)
            for number, count in enumerate(slices)
        ]
        self._admission = admission or Admission()
        self._fleet.together = self._buckets_together
        self._once = OnceOrders(self._fleet, self._slices)
        self._reports = FleetReports(self._fleet, self._slices)
        self._load = FleetLoad(self._fleet, self._slices, self._reports, on_window=on_window, halt=self._halt)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._subscriptions: list[Subscription[BusMessage]] = []
        self.refused_windows = 0
        """messages with windows of nodes that have no slice of this run, or none any more"""
        self.ended: asyncio.Future[None]

    async def __aenter__(self) -> Self:
        self.ended = asyncio.get_running_loop().create_future()
        job = self._fleet.job
        try:
            for subject, take in (
                (window_subject("*", job, "*"), self._take_windows),
                (line_subject("*", job, "*"), self._take_lines),
            ):
                self._subscriptions.append(await self._data_bus.subscribe(subject, limit=_WAITING))
                self._run(take(self._subscriptions[-1]))
        except BaseException:
            await self._close()
            raise
        self._run(self._watch_ended())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Lead no more, and release all slices if that is to be done here."""
        try:
            if self._releases_at_exit:
                await self.release()
        finally:
            await self._close()

    async def _close(self) -> None:
        self._fleet.is_stopping = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for subscription in self._subscriptions:
            await subscription.close()
        if not self.ended.done():
            self.ended.set_result(None)

    # the port ---------------------------------------------------------------------------------------

    async def prepare(self, order: RunOrder) -> None:
        """Have every slice load the test, on the machine that it is assigned to. Raises `InvalidInput` if one refuses
        it, and `GeneratorLost` with the reason of each slice that is not ready in time."""
        fleet = self._fleet
        fleet.order = order
        for one in self._slices:
            self._run(one.keep())
        if not fleet.record.gos:
            await self._led(self._load.all_ready())

    async def set_up(self, workflows: Sequence[str], shared: dict[str, dict[str, Any]], *, calls: int) -> Values:
        """Run the setups, in the first slice."""
        return await self._led(self._once.set_up(workflows, shared, calls=calls))

    async def collect_provided(self, workflows: Sequence[str], *, calls: int) -> Values:
        """What these workflows provide, in the first slice that ran them to their end."""
        return await self._led(self._once.collect(workflows, calls=calls))

    async def tear_down(self, workflows: Sequence[str], *, calls: int) -> Values:
        """Run the teardowns, each where its setup ran."""
        return await self._led(self._once.tear_down(workflows, calls=calls))

    def stop(self, *, hurry: bool) -> None:
        self._fleet.is_stopping = True
        self._hurry(self._fleet.settings.unconfirmed_s)
        self._tell_all(StopRun(hurry))

    def give_up(self) -> None:
        self._fleet.is_stopping = True
        self._hurry(self._fleet.settings.let_go_s)
        self._tell_all(GiveUp())

    def kill(self) -> None:
        self._fleet.is_stopping = self._fleet.is_killed = True
        self._hurry(self._fleet.settings.let_go_s)
        self._tell_all(KillSlice())

    def leave(self) -> None:
        """Lead no more: a successor does. Nothing is sent any more, the slices run on, and calls raise `StaleClaim`."""
        self._fleet.fail(StaleClaim("another leader goes on with the run"))

    async def release(self) -> None:
        """End the processes and services of all slices. One that cannot be reached ends by itself."""
        self._fleet.is_stopping = True
        live = [one.live for one in self._slices if one.live is not None and self._fleet.failure is None]
        releases = [asyncio.ensure_future(link.release()) for link in live]
        try:
            if releases:
                await asyncio.wait(releases, timeout=RELEASE_S)
        finally:
            for task in releases:
                task.cancel()
            await asyncio.gather(*releases, return_exceptions=True)

    # the load ---------------------------------------------------------------------------------------

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
        make = functools.partial(
            FleetGo,
            workflows=workflows,
            shared=shared,
            longest_s=longest_s,
            drain_s=drain_s,
            steady=self._fleet.steady,
        )
        return await self._led(self._load.run(make, start))

    # for those who report the run -------------------------------------------------------------------

    def reports(self) -> list[SliceReport]:
        """The facts of each slice so far: one for each assignment."""
        return self._reports.reports()

    @property
    def record(self) -> FleetRecord:
        """What the next leader must know. It changes."""
        return self._fleet.record

    def note(self) -> None:
        """Put what was received so far into the record, which is stored with the numbers so far."""
        self._reports.note()

    def has_begun(self, workflows: Sequence[str]) -> bool:
        """Whether there is a record of an order to go for one of these workflows."""
        return any(not go.void and not set(workflows).isdisjoint(go.workflows) for go in self._fleet.record.gos)

    def lost_windows(self) -> list[Window]:
        """The sums of what was received from assignments that were lost."""
        return [part.total for part in self._fleet.record.lost if part.total is not None]

    def doubts(self) -> list[str]:
        """Losses, clocks that are uncertain, and slices that did not start together."""
        return self._reports.doubts()

    @property
    def start_skew_s(self) -> float:
        """How far apart the slices started at most: what they measured, and the doubt about their clocks."""
        return start_skew_s(self.reports())

    # within -----------------------------------------------------------------------------------------

    async def _led(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something, for as long as this leader can lead."""
        working: asyncio.Task[T] = asyncio.ensure_future(work)
        failing = asyncio.ensure_future(self._fleet.until_failed())
        # they are waited for at the end
        self._tasks |= {working, failing}
        try:
            await asyncio.wait([working, failing], return_when=asyncio.FIRST_COMPLETED)
            self._fleet.check()
            return working.result()
        finally:
            for task in (working, failing):
                task.cancel()
                task.add_done_callback(self._forget)

    def _halt(self) -> None:
        """Something was lost that ends the run."""
        if not self._fleet.is_ending():
            self.stop(hurry=True)

    def _hurry(self, within_s: float) -> None:
        for one in self._slices:
            if one.live is not None:
                one.live.hurry(within_s)
        self._fleet.change()

    def _tell_all(self, order: StopRun | GiveUp | KillSlice) -> None:
        self._fleet.ending = order
        if self._fleet.failure is None:
            for one in self._slices:
                if one.live is not None:
                    self._run(self._tell(one.live, order))

    async def _tell(self, link: SliceLink, order: StopRun | GiveUp | KillSlice) -> None:
        with contextlib.suppress(GeneratorLost):
            await link.ask(order, CommandAccepted)

    async def _watch_ended(self) -> None:
        fleet = self._fleet

        def have_ended() -> bool:
            return all(
                (one.live is None and fleet.is_ending()) or (one.live and one.live.is_over) for one in self._slices
            )

        await fleet.until(have_ended)
        if not self.ended.done():
            self.ended.set_result(None)

    def _buckets_together(self) -> int:
        waiting = self._subscriptions[0].waiting if self._subscriptions else 0
        level = LEVELS.index(self._admission.level)
        return buckets_together(level=level, queue_share=waiting / _WAITING, slices=len(self._slices))

    async def _take_windows(self, messages: Subscription[BusMessage]) -> None:
        async for message in messages:
            if (link := self._link_of(message)) is None:
                self._refuse_windows(message)
                continue
            with contextlib.suppress(*UNREADABLE):
                for part in decode_windows(message.body):
                    link.take(part)

    async def _take_lines(self, messages: Subscription[BusMessage]) -> None:
        async for message in messages:
            if self._link_of(message) is not None and not self._admission.sheds(MessageClass.TELEMETRY):
                with contextlib.suppress(*UNREADABLE):
                    for process, line in decode_lines(message.body).lines:
                        self._on_line(process, line)

    def _link_of(self, message: BusMessage) -> SliceLink | None:
        node, _, number = message.subject.split(".")[-3:]
        own = self._slices[int(number)] if number.isdecimal() and int(number) < len(self._slices) else None
        link = None if own is None else own.live
        # a subject proves its sender: a node cannot speak for another one
        return link if link is not None and link.member.node == node else None

    def _refuse_windows(self, message: BusMessage) -> None:
        node, job, number = message.subject.split(".")[-3:]
        if not self.refused_windows:
            log.info("job=%s slice=%s: windows of node %s are refused: the slice is not its own", job, number, node)
        self.refused_windows += 1

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: its caller has it, or something else ended the call

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # another leader, no bus, no store, or a bug of ours: this one cannot lead any more
            self._fleet.fail(error)


__all__ = ["FleetRunner"]
