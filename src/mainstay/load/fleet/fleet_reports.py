"""What the leader of a fleet reports of its slices: the facts of each assignment, and why numbers are doubtful."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ..stats.model import SliceReport, Window
from ..stats.tally import merge_windows
from .fleet_context import FleetContext
from .fleet_go import merged_reports
from .led_slice import LedSlice
from .messages import encode
from .record import LostPart
from .record_size import RECORD_BYTES, record_bytes, reduction_note
from .settings import FleetSettings
from .slice_go import SliceGo

#: of what was received so far, which is stored every few seconds
_MOST_BYTES = 256 * 1024
#: notes that are left out after one that was too large: to add up the windows of all slices takes long
_LEFT_OUT = 30


class FleetReports:
    """Reports of the gos that are over, and of the running one."""

    def __init__(self, fleet: FleetContext, slices: Sequence[LedSlice]) -> None:
        self._fleet = fleet
        self._slices = slices
        self._running: list[SliceGo] = []
        self._unrecorded: list[SliceReport] = []
        """of gos that have no record of their end: the run was stopped in them"""
        self._left_out = 0
        """notes to leave out"""
        self._reduced = fleet.record.reduced
        """how exact the sums are that leaders before this one have kept"""

    def begin(self, slices: list[SliceGo]) -> list[SliceGo]:
        """A go begins in these slices."""
        self._running, self._left_out = slices, 0
        return slices

    def end(self, *, recorded: bool) -> list[SliceReport]:
        """It is over: the reports of what was not lost. `recorded`: they are put into the record."""
        reports = [report for one in self._running for report in one.reports]
        self._running = []
        if not recorded:
            self._unrecorded += reports
        return reports

    def total(self, go: int) -> Window | None:
        """The sum of all windows of the running go."""
        totals = [total for one in self._running for total in one.totals]
        totals += [part.total for part in self._fleet.record.lost if part.go == go and part.total is not None]
        return merge_windows(totals) if totals else None

    def note(self) -> None:
        """Put what was received so far into the record; a large test has no room for it. What a leader before this one
        has noted stays until the slice has answered this one."""
        if self._left_out:
            self._left_out -= 1
            return
        record, parts = self._fleet.record, list[LostPart]()
        room = min(_MOST_BYTES, RECORD_BYTES - record_bytes(replace(record, received=[])))
        for part in self._noted():
            room -= len(encode(part))
            if room < 0:
                self._left_out = _LEFT_OUT
                return
            parts.append(part)
        record.received = parts

    def _noted(self) -> Iterator[LostPart]:
        running, known = self._fleet.running_go, set[int]()
        for one in self._running:
            if (part := one.note()) is not None:
                known.add(part.report.slice)
                yield part
        for part in self._fleet.record.received:
            if running is not None and part.go == running.go and part.report.slice not in known:
                yield part

    def reports(self) -> list[SliceReport]:
        """One for each assignment of a slice."""
        record = self._fleet.record
        found = [report for end in record.ends for report in end.slices]
        # nothing follows the loss of an assignment
        found += [part.report for part in record.lost]
        found += self._unrecorded
        found += [report for one in self._running for report in one.reports]
        links = [one.link for one in self._slices if one.link is not None and not one.is_dropped]
        found += [link.report() for link in links if link.is_loading]
        known = {(report.slice, report.token) for report in found}
        # not under load yet
        found += [link.report() for link in links if (link.number, link.member.token) not in known]
        return merged_reports(found)

    def doubts(self) -> list[str]:
        """Why the numbers are not those of the planned load."""
        record = self._fleet.record
        workflows = {go.go: ", ".join(go.workflows) for go in record.gos}
        of = sum(one.processes for one in self._slices)
        return [
            *(lost_text(part, of, workflows[part.go]) for part in record.lost),
            *record.notes,
            *([reduction_note(self._reduced)] if self._reduced else []),
            *clock_doubts(self.reports(), self._fleet.settings),
        ]


def lost_text(part: LostPart, of: int, workflows: str) -> str:
    """A loss in words. `of`: processes of the run.

    >>> report = SliceReport(slice=1, node="n2", processes=2, end_s=12.3, gap_s=2.75, loss="slice 1 (n2): it crashed")
    >>> lost_text(LostPart(go=1, report=report, total=None), 8, "Shop")
    'slice 1 (n2): it crashed. Its part of the load (2 of 8 processes) is missing or unknown from 12.3 s to 15.1 s after
    the start of Shop'
    """
    report = part.report
    end_s = report.end_s or 0.0
    return (
        f"{report.loss}. Its part of the load ({report.processes} of {of} processes) is missing or unknown from "
        f"{end_s:.1f} s to {end_s + report.gap_s:.1f} s after the start of {workflows}"
    )


def clock_doubts(reports: Sequence[SliceReport], settings: FleetSettings) -> list[str]:
    """Clocks that are uncertain, and starts that were apart."""
    doubts = [
        f"the clock of slice {report.slice} ({report.node}) is uncertain by {1000 * report.clock_doubt_s:.0f} ms"
        for report in reports
        if report.clock_doubt_s is not None and settings.doubt_s < report.clock_doubt_s < math.inf
    ]
    skew_s = start_skew_s(reports)
    if settings.skew_s < skew_s < math.inf:
        doubts.append(f"the slices started up to {1000 * skew_s:.0f} ms apart")
    return doubts


def start_skew_s(reports: Sequence[SliceReport]) -> float:
    """How far apart the slices started at most: what they measured, and the doubt about their clocks."""
    together = [report for report in reports if not report.begin_s and report.windows]
    if not together:
        return 0.0
    late_s = [report.start_late_s for report in together]
    return max(late_s) - min(late_s) + 2 * max(report.clock_doubt_s or 0.0 for report in together)


__all__ = ["FleetReports", "clock_doubts", "lost_text", "start_skew_s"]
