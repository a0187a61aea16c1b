"""The load of a fleet: all slices go from one instant on or not at all, or a successor of the leader adopts what
runs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from ...errors import InvalidInput
from ..engine.messages import StartInstant, WorkflowsDone
from ..generator_process import GeneratorLost
from ..runner import RestartNeeded
from ..stats.model import Window
from ..stats.tally import merge_windows
from .fleet_context import FleetContext
from .fleet_go import FleetGo, with_gaps
from .fleet_reports import FleetReports
from .led_slice import LedSlice
from .record import GoEnd, GoRecord
from .record_size import add_end
from .slice_go import SliceGo, SliceResult, StoppedBefore
from .slice_link import SliceLink

T = TypeVar("T")


class _MakeGo(Protocol):
    def __call__(self, number: int) -> FleetGo: ...


class FleetLoad:
    """The gos of a run, one after the other."""

    def __init__(
        self,
        fleet: FleetContext,
        slices: Sequence[LedSlice],
        reports: FleetReports,
        *,
        on_window: Callable[[Window], None],
        halt: Callable[[], None],
    ) -> None:
        """`halt` stops all slices: something was lost that ends the run."""
        self._fleet = fleet
        self._slices = slices
        self._reports = reports
        self._merger = fleet.merger
        self._on_window = on_window
        self._halt = halt
        self._gos = 0

    @property
    def _wanted(self) -> list[LedSlice]:
        return [one for one in self._slices if not one.is_dropped]

    async def all_ready(self) -> None:
        """Wait until every slice has loaded the test, or the run is stopped. Raises `InvalidInput` if one refuses it,
        and `GeneratorLost` with the reason of each slice that is not ready in time."""
        fleet, limit_s = self._fleet, self._fleet.settings.ready_s

        def is_decided() -> bool:
            wanted = self._wanted
            return fleet.is_ending() or any(one.error for one in wanted) or all(one.ready for one in wanted)

        await fleet.until(is_decided, within_s=limit_s)
        if fleet.is_stopping:
            return
        unready = [one for one in self._wanted if one.ready is None]
        for one in unready:
            if one.refusal is not None:
                raise one.refusal
        if unready:
            named = [one for one in unready if one.error is not None] or unready
            rule = f"it was not ready within {limit_s:g} s"
            raise GeneratorLost(f"not all slices are ready: {'; '.join(one.unready(rule) for one in named)}")

    async def run(self, make: _MakeGo, start: StartInstant | None) -> tuple[list[WorkflowsDone], GeneratorLost | None]:
        """The next go, to its end."""
        fleet = self._fleet
        fleet.check()
        recorded = [one for one in fleet.record.gos if not one.void][self._gos :][:1]
        self._gos += 1
        if recorded and (end := fleet.go_end(recorded[0].go)) is not None:
            if end.total is not None:
                self._on_window(replace(end.total, adopted=True))
            return end.reports, None
        ticking = asyncio.ensure_future(self._tick())
        try:
            if recorded:
                go = make(number=recorded[0].go)
                adopted = await self._adopt(go, recorded[0])
                if adopted is not None:
                    return await self._ended_go(go, *adopted)
            go = make(number=len(fleet.record.gos) + 1)
            return await self._ended_go(go, *await self._start_all(go, start))
        finally:
            ticking.cancel()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(max(self._fleet.settings.hold_s / 10, self._merger.left_s))
            self._merger.tick()

    async def _start_all(self, go: FleetGo, start: StartInstant | None) -> tuple[list[SliceResult], str]:
        """Order all slices to go, and wait for the end. Also returns why not all have started; empty if they have."""
        fleet = self._fleet
        if not fleet.is_ending():
            await self._before_go()
        if fleet.is_ending():
            stopped = GeneratorLost("the run was stopped before the load") if fleet.is_killed else None
            return [SliceResult([], stopped)], ""
        links = {one.number: one.ready for one in self._wanted if one.ready is not None}
        ahead_s = max(fleet.settings.ahead_s, *(4 * link.peer_clock.round_trip_s for link in links.values()))
        ahead_s = ahead_s if start is None else start.after_s
        wall_s = fleet.clock.now_ms() / 1000 + ahead_s if start is None else start.wall
        at_s = fleet.steady() + ahead_s
        fleet.put_go(
            GoRecord(
                go=go.number,
                workflows=go.workflows,
                wall=wall_s,
                tokens=[links[one.number].member.token if one.number in links else 0 for one in self._slices],
                nodes=[links[one.number].member.node if one.number in links else "" for one in self._slices],
            )
        )
        await fleet.save()
        if start is None and at_s - fleet.steady() < ahead_s / 2:
            # to store it took long
            at_s, wall_s = fleet.steady() + ahead_s, fleet.clock.now_ms() / 1000 + ahead_s
        if fleet.is_ending():
            fleet.put_go(replace(fleet.record.gos[-1], void=True))
            return [SliceResult([])], ""
        go.begin(at_s=at_s, wall_s=wall_s, begin_s=0.0 if start is None else start.begin_s)
        self._merger.open(links)
        gos = self._reports.begin([SliceGo(fleet, one, go) for one in self._slices])
        for number, link in links.items():
            gos[number].open(link)
        refused, unstarted = await self._order_all(go, gos, links)
        if unstarted:
            await self._end_early(f"not started together: {unstarted}")
        for number in refused:
            self._merger.close(number)
            links[number].is_loading = False
            fleet.change()
        going = [self._through(gos[number], link) for number, link in links.items() if number not in refused]
        return await _all(going), unstarted

    async def _before_go(self) -> None:
        """Wait for slices that were lost since the last load, if they are to be replaced."""
        fleet = self._fleet
        lost = [one.link.loss for one in self._wanted if one.link is not None and one.link.loss is not None]
        if lost and self._gos > 1 and fleet.on_loss in ("fail", "restart"):
            raise self._fatal(lost[0])
        for one in self._wanted:
            one.is_dropped = fleet.on_loss == "continue" and self._gos > 1 and one.live is None
        if not self._wanted:
            raise GeneratorLost("all slices were lost")
        try:
            await self.all_ready()
        except InvalidInput as error:
            raise GeneratorLost(str(error)) from None

    async def _order_all(
        self, go: FleetGo, gos: Sequence[SliceGo], links: dict[int, SliceLink]
    ) -> tuple[set[int], str]:
        """Returns the slices that have refused, and why not all have started; empty if they have."""
        confirm_s = self._fleet.settings.confirm_s
        tasks = {asyncio.ensure_future(gos[number].start(link)): link for number, link in links.items()}
        try:
            until_s = go.at_s + go.begin_s + confirm_s
            done, late = await asyncio.wait(
                tasks, timeout=until_s - self._fleet.steady(), return_when=asyncio.FIRST_EXCEPTION
            )
        finally:
            for task in tasks:
                task.cancel()
        failed = {tasks[task].number: error for task in done if (error := task.exception()) is not None}
        for error in failed.values():
            if not isinstance(error, GeneratorLost | InvalidInput):
                raise error
        refused = {number for number in failed if links[number].loss is None}
        if not failed:
            rule = f"it had not confirmed the start {confirm_s:g} s after it"
            failed = {tasks[task].number: tasks[task].not_done(rule) for task in late}
        return refused, "; ".join(str(error) for _, error in sorted(failed.items()))

    async def _adopt(self, go: FleetGo, recorded: GoRecord) -> tuple[list[SliceResult], str] | None:
        """Go on with a load that a leader before this one has ordered; None if it never began, and cannot any more."""
        fleet = self._fleet
        self._merger.open(range(len(self._slices)), holding=True)
        gos = self._reports.begin([SliceGo(fleet, one, go) for one in self._slices])
        totals = [part.total for part in fleet.record.lost if part.go == go.number]
        # one that does not answer is lost within seconds. Its sum belongs before the windows that wait: a bucket that
        # has the load of minutes would show what never was
        adopted = await _all(one.adopt(recorded) for one in gos)
        totals += [one.total for one in adopted]
        unbegun = [number for number, one in enumerate(adopted) if one.is_unbegun]
        if (
            unbegun
            and not any(one.link or one.total is not None for one in adopted)
            and not any(part.go == go.number for part in fleet.record.lost)
        ):
            fleet.put_go(replace(recorded, void=True))
            await fleet.save()
            return None
        for number, one in enumerate(adopted):
            if one.link is None:
                self._merger.close(number)
        known = [total for total in totals if total is not None]
        self._merger.begin_with(merge_windows(known) if known else None)
        if math.isinf(go.at_s):
            passed_s = fleet.clock.now_ms() / 1000 - recorded.wall
            go.begin(at_s=fleet.steady() - max(0.0, passed_s), wall_s=recorded.wall)
        names = ", ".join(self._slices[number].name for number in unbegun)
        never = f"{names} never heard the order to go" if unbegun else ""
        if never:
            await self._end_early(f"not started together: {never}")
        elif fleet.record.ending:
            self._halt()
        going = [self._through(gos[number], one.link) for number, one in enumerate(adopted) if number not in unbegun]
        return await _all(going), never

    async def _through(self, one: SliceGo, link: SliceLink | None) -> SliceResult:
        """A slice until its end. If that ends the run, all others stop."""
        result = await one.run_through(link)
        if result.loss is not None and not self._fleet.is_killed:
            await self._end_early(str(result.loss))
        return result

    async def _end_early(self, why: str) -> None:
        """Stop all, and tell successors why."""
        fleet = self._fleet
        is_first = not fleet.is_ending()
        self._halt()
        if is_first:
            fleet.record.ending = fleet.record.ending or why
            await fleet.save()

    async def _ended_go(
        self, go: FleetGo, results: list[SliceResult], unstarted: str
    ) -> tuple[list[WorkflowsDone], GeneratorLost | None]:
        fleet = self._fleet
        fleet.check()
        reports = [report for result in results for report in result.reports]
        losses = [result.loss for result in results if result.loss is not None]
        if fleet.record.ending and not fleet.is_killed:
            losses = losses or [GeneratorLost(fleet.record.ending)]
        ended_s = min(go.planned_s, max((report.loaded for report in reports), default=go.now_s))
        own = fleet.go_record(go.number)
        if own is None:
            return reports, losses[0] if losses else None  # it was never ordered
        fleet.record.lost = with_gaps(fleet.record.lost, go.number, own.tokens, ended_s)
        is_done = not (unstarted or losses or fleet.is_stopping)
        total = self._reports.total(go.number) if is_done else None
        slices = self._reports.end(recorded=is_done)
        if unstarted:
            lost = any(part.go == go.number for part in fleet.record.lost)
            if not lost and not any(report.windows for report in slices):
                fleet.put_go(replace(own, void=True))
                await fleet.save()
            return reports, GeneratorLost(f"not started together: {unstarted}")
        if losses:
            return reports, self._fatal(losses[0])
        if is_done:
            if not self._wanted or (not reports and total is None):
                return [], GeneratorLost("all slices were lost")
            add_end(fleet.record, GoEnd(go=go.number, reports=reports, total=total, slices=slices))
            await fleet.save()
        return reports, None

    def _fatal(self, loss: GeneratorLost) -> GeneratorLost:
        is_lost = not self._fleet.is_killed and not isinstance(loss, StoppedBefore)
        is_restarted = is_lost and self._fleet.on_loss == "restart"
        return RestartNeeded(str(loss)) if is_restarted else loss


async def _all(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all; if one raises, the others end."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


__all__ = ["FleetLoad"]
