"""A go in one slice: the load of one assignment, and of those that replace it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from ..engine.messages import GiveUp, StopRun, WorkflowsDone
from ..generator_process import GeneratorLost
from ..stats.model import SliceReport, Window
from .fleet_context import FleetContext
from .fleet_go import FleetGo, after_loss, begun_by_workflow, done_before, with_gap
from .led_slice import LedSlice
from .message_checks import adopted_fault, end_fault
from .messages import AdoptGo, CollectEnd, CommandAccepted, GoAdopted, KillSlice, SliceEnd
from .record import GoRecord, LostPart
from .slice_link import SliceLink
from .stored_end import known_s, stored_end, stored_report

T = TypeVar("T")

#: how often a replacement is ordered to go, if it hears the order too late
_TRIES = 5


class SliceResult(NamedTuple):
    """How a go ended in one slice. `loss` ends the run."""

    reports: list[WorkflowsDone]
    loss: GeneratorLost | None = None


class AdoptedSlice(NamedTuple):
    """What a successor of the leader finds of a go in one slice."""

    link: SliceLink | None = None
    """under load, or done; None: it has to be replaced, or is not part of the run any more"""
    total: Window | None = None
    """the sum of its windows up to then; of a lost one, what is known of it"""
    is_unbegun: bool = False
    """it has not begun this go, and cannot any more"""


class StoppedBefore(GeneratorLost):
    """A leader before this one has stopped the load, and died before it could record why: the run is not started
    again."""


class SliceGo:
    """One go in one slice."""

    def __init__(self, fleet: FleetContext, slice_: LedSlice, go: FleetGo) -> None:
        self._fleet = fleet
        self._slice = slice_
        self._go = go
        self._over = 0
        """the token of the last assignment that was lost"""
        self.reports: list[SliceReport] = []
        """of the assignment that came to the end"""
        self.totals: list[Window] = []
        """the sum of its windows"""
        self._ended: SliceResult | None = None
        """how it ended, if the store knows and the node is gone"""
        self._told: GeneratorLost | None = None
        """a leader before this one has stopped the load"""
        self.is_confirmed = False
        """the last assignment has heard the order to go"""

    # the beginning ----------------------------------------------------------------------------------

    async def start(self, link: SliceLink) -> None:
        """Order a slice to go, together with all others. Raises `GeneratorLost` if it cannot."""
        order = self._go.order(link.peer_clock, begin_s=self._go.begin_s)
        link.start_doubt_s = order.doubt_s
        # an order that was lost should be repeated before the instant
        answer_s = max(0.1, 2 * link.peer_clock.round_trip_s)
        await link.ask(order, CommandAccepted, doing="it was under load", answer_s=answer_s)
        self.is_confirmed = True

    def open(self, link: SliceLink, *, begin_s: float | None = None) -> None:
        """Expect the windows of an assignment."""
        go = self._go
        begin_s = go.begin_s if begin_s is None else begin_s
        link.open(go.number, wall_s=go.wall_s, at_s=go.at_s + begin_s, begin_s=begin_s)

    async def adopt(self, recorded: GoRecord) -> AdoptedSlice:
        """Find out what a slice does that a leader before this one has ordered to go."""
        fleet, own = self._fleet, self._slice
        token = recorded.tokens[own.number]
        begin_s = recorded.begin_s[own.number] if recorded.begin_s else 0.0
        if not token:
            own.is_dropped = True
            return AdoptedSlice()
        lost = [part.report for part in fleet.record.lost if part.go == recorded.go]
        if any((report.slice, report.token) == (own.number, token) for report in lost):
            self._over = token
            return AdoptedSlice()
        await fleet.until(lambda: own.error or self._is_found(token), within_s=fleet.settings.lost_s)
        link = own.ready
        if link is not None and link.member.token == token:
            try:
                answer = await self._ask_adopt(link, recorded, begin_s)
            except GeneratorLost as error:
                link.fail(error)
            else:
                if fleet.ending is not None:
                    # it was given before this slice was known
                    await self._repeat(link, fleet.ending)
                return self._adopted(link, answer, begin_s)
        end = await stored_end(fleet, own, recorded, begin_s)
        if end is not None and not end.isolated and not end.loss:
            self._ended = self._result_of(end, recorded, begin_s)
            self._unload(own.link)
            return AdoptedSlice(total=end.total)
        why = str(own.link.loss) if own.link is not None and own.link.member.token == token else ""
        await self._lost_unseen(recorded, begin_s, why, end)
        self._unload(own.link)
        of = (recorded.go, own.number, token)
        known = next(one for one in fleet.record.lost if (one.go, one.report.slice, one.report.token) == of)
        return AdoptedSlice(total=known.total)

    async def _ask_adopt(self, link: SliceLink, recorded: GoRecord, begin_s: float) -> GoAdopted:
        """What it did before. Raises `GeneratorLost` if that cannot be true."""
        lost_s = self._fleet.settings.lost_s
        answer = await link.ask(AdoptGo(recorded.go), GoAdopted, doing="it was under load", limit_s=lost_s)
        fault = adopted_fault(
            answer,
            now_s=self._fleet.steady() + link.peer_clock.offset_s,
            slack_s=lost_s,
            wall_s=recorded.wall,
            begin_s=begin_s,
            processes=link.processes,
        )
        if fault:
            raise link.not_done(f"what it says of its load cannot be true: {fault}")
        return answer

    def _result_of(self, end: SliceEnd, recorded: GoRecord, begin_s: float) -> SliceResult:
        """How the go ended in an assignment that is gone."""
        assert end.total is not None
        self.reports.append(stored_report(self._slice, end, recorded, begin_s))
        self.totals.append(end.total)
        self._told = self._told_by(end)
        return SliceResult(_later(end.reports, begin_s - self._go.begin_s), self._told)

    async def _repeat(self, link: SliceLink, order: StopRun | GiveUp | KillSlice) -> None:
        with contextlib.suppress(GeneratorLost):
            await link.ask(order, CommandAccepted)

    def _is_found(self, token: int) -> bool:
        """Whether it is known what has become of an assignment."""
        link = self._slice.link
        return link is not None and (link.member.token != token or link.is_ready or link.loss is not None)

    def _adopted(self, link: SliceLink, answer: GoAdopted, begin_s: float) -> AdoptedSlice:
        go = self._go
        if not answer.began:
            # a replacement is ordered again, alone
            self._over = link.member.token - 1
            self._take_back()
            self._unload(link)
            return AdoptedSlice(is_unbegun=not begin_s)
        at_s, wall_s = answer.at_s - link.peer_clock.offset_s, answer.wall - answer.begin_s
        if math.isinf(go.at_s):
            go.begin(at_s=at_s - answer.begin_s, wall_s=wall_s)
        self.is_confirmed = True
        link.start_doubt_s = answer.doubt_s
        link.open(go.number, wall_s=wall_s, at_s=at_s, begin_s=answer.begin_s, upto=answer.windows)
        if answer.total is not None:
            link.windows.add_sum(answer.total)
        return AdoptedSlice(link=link, total=answer.total)

    # to the end -------------------------------------------------------------------------------------

    async def run_through(self, link: SliceLink | None) -> SliceResult:
        """Wait for the end. `link`: to the assignment under load; None: it was lost before."""
        if self._ended is not None:
            return self._ended
        while True:
            if link is not None:
                try:
                    reports = await self._end_of(link)
                except GeneratorLost as error:
                    await self._lost(link, error)
                    if (result := self._without(link.loss or error)) is not None:
                        return result
                else:
                    return SliceResult(reports, self._told)
            elif (result := self._without(None)) is not None:
                return result
            link = await self._replacement()
            if link is None:
                own = self._slice
                refused = isinstance(own.error, Exception) and not self._is_over
                return SliceResult([], GeneratorLost(own.unready("")) if refused else None)

    def _without(self, loss: GeneratorLost | None) -> SliceResult | None:
        """How the go ends without this slice; None: it is to be replaced."""
        fleet, go, own = self._fleet, self._go, self._slice
        after = after_loss(
            fleet.on_loss,
            is_ending=fleet.is_ending(),
            begin_s=go.now_s + fleet.settings.ahead_s,
            planned_s=go.planned_s,
        )
        if fleet.is_killed or after == "end":
            return SliceResult([], loss or GeneratorLost(f"{own.name} was lost before"))
        if after == "replace":
            return None
        own.is_dropped = own.is_dropped or (fleet.on_loss == "continue" and not fleet.is_ending())
        return SliceResult([])

    @property
    def _is_over(self) -> bool:
        """Nothing is left to do for a replacement."""
        fleet = self._fleet
        return fleet.is_ending() or self._go.now_s + fleet.settings.ahead_s >= self._go.planned_s

    async def _end_of(self, link: SliceLink) -> list[WorkflowsDone]:
        """The end of the go in one assignment, with all its windows."""
        try:
            # a plan that it does not end is one that it does not follow
            limit_s = self._go.left_s + self._fleet.settings.stall_s
            end = await link.ask(CollectEnd(self._go.number), SliceEnd, doing="it was under load", limit_s=limit_s)
            fault = end_fault(
                end,
                go=self._go.number,
                upto=link.windows.upto,
                longest_s=link.loaded_s,
                workflows=self._go.workflows,
                buckets=link.buckets,
                processes=link.processes,
            )
            if fault:
                raise link.not_done(f"the end of its load cannot be true: {fault}")
            link.start_late_s = max((report.late_s for report in end.reports), default=0.0)
            await link.receive_all(end.windows)
            if not end.began and self.is_confirmed:
                raise link.not_done("it does not know that it was under load")
            self._told = self._told_by(end)
            if self._told is None and end.isolated:
                limit_s = self._fleet.settings.isolation_s
                raise link.not_done(f"it had no contact for {limit_s:g} s, and stopped its load")
            if end.loss:
                raise link.not_done(end.loss)
        finally:
            self._fleet.merger.close(link.number)
        late = self._fleet.merger.take_late(link.number)
        self.reports.append(replace(link.report(), late_windows=late, stop="stopped" if end.stopped else ""))
        if link.windows.total is not None:
            self.totals.append(link.windows.total)
        self._unload(link)
        return _later(end.reports, link.windows.begin_s - self._go.begin_s)

    def _told_by(self, end: SliceEnd) -> GeneratorLost | None:
        """Why a leader before this one has stopped the load; None: none has."""
        if not end.stopped or self._fleet.is_ending():
            return None
        if self._fleet.record.ending:
            return GeneratorLost(self._fleet.record.ending)
        return StoppedBefore(f"{self._slice.name}: a leader before this one has stopped the run")

    # losses -----------------------------------------------------------------------------------------

    async def _lost(self, link: SliceLink, error: GeneratorLost) -> None:
        """Record what was received, before the assignment is ended."""
        fleet = self._fleet
        link.fail(error)
        self._over = link.member.token
        part = self._received(link)
        late = fleet.merger.take_late(link.number)
        fleet.record.lost.append(replace(part, report=replace(part.report, late_windows=late)))
        if not fleet.is_stopping:
            await fleet.save()
        self._unload(link)

    def note(self) -> LostPart | None:
        """What was received so far of an assignment under load, as if it were lost now."""
        link = self._slice.live
        return self._received(link) if link is not None and link.is_loading and link.go == self._go.number else None

    def _received(self, link: SliceLink) -> LostPart:
        end_s = min(link.windows.known_s, self._go.planned_s)
        return self._part(replace(link.report(), end_s=end_s), link.windows.total)

    def _part(self, report: SliceReport, total: Window | None) -> LostPart:
        go = self._go
        begun = begun_by_workflow(total, go.workflows, self._fleet.order.plan)
        return LostPart(go=go.number, report=report, total=total, begun=begun)

    def _unload(self, link: SliceLink | None) -> None:
        """All is known of the load of an assignment that will be known."""
        if link is not None:
            link.is_loading = False
            self._fleet.change()

    async def _lost_unseen(self, recorded: GoRecord, begin_s: float, why: str, end: SliceEnd | None) -> None:
        """Record a loss of which nothing was received: the leader that had received its windows is gone. `end`: of its
        load, which it has stored."""
        number = self._slice.number
        node = recorded.nodes[number]
        report = SliceReport(
            slice=number,
            token=recorded.tokens[number],
            node=node,
            processes=self._slice.processes,
            begin_s=begin_s,
            end_s=begin_s,
            loss=why or f"slice {number} ({node}) was lost while the run had no leader",
        )
        self._over = report.token
        part = LostPart(go=recorded.go, report=report, total=None)
        for noted in self._fleet.record.received:
            if (noted.go, noted.report.slice, noted.report.token) == (recorded.go, number, report.token):
                part = replace(noted, report=replace(noted.report, loss=report.loss))
        if end is not None:
            known = stored_report(self._slice, end, recorded, begin_s)
            known = replace(known, end_s=known_s(end, recorded, begin_s), loss=end.loss or report.loss)
            part = self._part(known, end.total)
        self._fleet.record.lost.append(part)
        await self._fleet.save()

    # replacements -----------------------------------------------------------------------------------

    async def _replacement(self) -> SliceLink | None:
        """The next assignment, under load; None if there is nothing to do any more, or nothing to be had."""
        fleet, go, own = self._fleet, self._go, self._slice
        while True:
            left_s = None if math.isinf(go.planned_s) else max(0.0, go.planned_s - go.now_s)
            await fleet.until(lambda: self._ready or own.error or fleet.is_ending(), within_s=left_s)
            link = self._ready
            if link is None or self._is_over:
                return None
            try:
                if await self._start_alone(link):
                    return link
            except GeneratorLost as error:
                # if it is silent, it is unknown whether it has begun
                fleet.merger.close(own.number)
                await self._lost(link, error)
            else:
                return None

    @property
    def _ready(self) -> SliceLink | None:
        """The assignment after the one that was lost, if it can go."""
        live = self._slice.live
        if live is not None and live.member.token <= self._over:
            # the store was late: this one was counted as lost before it was found
            live.fail(live.not_done("it was not found in time"))
            self._unload(live)
        ready = self._slice.ready
        return ready if ready is not None and ready.member.token > self._over else None

    async def _start_alone(self, link: SliceLink) -> bool:
        """Start a replacement in the middle of the plan. Returns whether it has begun: the plan may be over."""
        fleet, go = self._fleet, self._go
        for _ in range(_TRIES):
            ahead_s = max(fleet.settings.ahead_s, 4 * link.peer_clock.round_trip_s)
            begin_s = go.next_window_s(ahead_s)
            if begin_s >= go.planned_s or fleet.is_ending():
                return False
            self._put(link, begin_s)
            await fleet.save()
            # to store it took some time
            begin_s = max(begin_s, go.next_window_s(ahead_s / 2))
            self._put(link, begin_s)
            if fleet.is_ending():
                self._take_back()
                return False
            self.open(link, begin_s=begin_s)
            fleet.merger.join(link.number)
            done = done_before(fleet.record.lost, go.number, link.number)
            order = go.order(link.peer_clock, begin_s=begin_s, done=done)
            link.start_doubt_s = order.doubt_s
            answer_s = max(0.1, 2 * link.peer_clock.round_trip_s)
            try:
                limit_s = ahead_s + fleet.settings.confirm_s
                await link.ask(order, CommandAccepted, doing="it was under load", answer_s=answer_s, limit_s=limit_s)
            except GeneratorLost:
                # it has not begun; if the order was late, there is another instant
                if link.loss is not None or fleet.is_ending():
                    raise
            else:
                return True
        raise link.not_done(f"it did not start within {_TRIES} tries")

    def _take_back(self) -> None:
        """The recorded start of a replacement has not happened: the gap goes on."""
        fleet, number = self._fleet, self._slice.number
        recorded = fleet.go_record(self._go.number)
        lost = [one.report for one in fleet.record.lost if (one.go, one.report.slice) == (self._go.number, number)]
        if recorded is not None and lost:
            fleet.put_go(replace(recorded, tokens=_with(recorded.tokens, number, lost[-1].token)))

    def _put(self, link: SliceLink, begin_s: float) -> None:
        """Record that a slice continues the go, and the gap before."""
        fleet, number = self._fleet, link.number
        recorded = fleet.go_record(self._go.number)
        assert recorded is not None
        count = len(recorded.tokens)
        fleet.put_go(
            replace(
                recorded,
                tokens=_with(recorded.tokens, number, link.member.token),
                nodes=_with(recorded.nodes, number, link.member.node),
                begin_s=_with(recorded.begin_s or [0.0] * count, number, begin_s),
            )
        )
        fleet.record.lost = [
            with_gap(part, begin_s)
            if (part.go, part.report.slice, part.report.token) == (self._go.number, number, self._over)
            else part
            for part in fleet.record.lost
        ]


def _later(reports: Sequence[WorkflowsDone], seconds: float) -> list[WorkflowsDone]:
    """Reports whose times are those of the whole load, of a slice that began so much later."""
    return [replace(one, took=one.took + seconds, loaded=one.loaded + seconds) for one in reports]


def _with(values: list[T], at: int, value: T) -> list[T]:
    return [*values[:at], value, *values[at + 1 :]]


__all__ = ["AdoptedSlice", "SliceGo", "SliceResult", "StoppedBefore"]
