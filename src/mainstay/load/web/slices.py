"""The part of each node in a run on nodes, and what the run waits for, on its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ...clock import duration_text
from ...model import LEAD_QUEUE, Job
from ...stores import JobStore
from ..placement import PlacedRun
from ..placement.obstacles import run_obstacles
from ..placement.snapshot import read_snapshot

if TYPE_CHECKING:
    from ..stats.model import SliceReport, Summary


#: more rows stand below the curves, those that need attention first
_SHORT = 12


class SliceStyle(NamedTuple):
    """The state of a slice: the kind of its colour, its sign and its word."""

    kind: str
    sign: str
    word: str


_LOST = SliceStyle("bad", "✕", "lost")
_ENDED = SliceStyle("off", "–", "ended")
_STYLES: Mapping[str, SliceStyle] = {
    "pending": SliceStyle("wait", "○", "waiting"),
    "dispatched": SliceStyle("wait", "◌", "assigned"),
    "running": SliceStyle("busy", "▸", "running"),
}


class SlicePlace(msgspec.Struct, frozen=True, kw_only=True):
    """One assignment of a slice: a row of the table."""

    number: int
    node: str
    cores: int
    style: SliceStyle
    unit: str = ""
    """the id of its row; empty: it is over"""
    requests: int | None = None
    """None: its load has not begun"""
    failed: int = 0
    gap: str = ""
    """how long its part of the load was missing"""
    replaces: str = ""
    """from which time of the plan on, if it replaced a lost one"""
    loss: str = ""
    """why it was lost"""


class LoadPlaces(msgspec.Struct, frozen=True):
    """Where a run is, and what it waits for."""

    waits: tuple[str, ...] = ()
    rows: tuple[SlicePlace, ...] = ()

    @property
    def nodes(self) -> int:
        return len({row.node for row in self.rows if row.node})

    @property
    def cores(self) -> int:
        """Of all slices that are not lost."""
        return sum(row.cores for row in self.rows if not row.loss)

    @property
    def is_short(self) -> bool:
        """Whether the rows may stand above the curves."""
        return len(self.rows) <= _SHORT

    @property
    def has_gaps(self) -> bool:
        return any(row.gap or row.loss or row.replaces for row in self.rows)


async def load_places(store: JobStore, job: Job, summary: Summary | None) -> LoadPlaces:
    """Where a run is now. One that has ended is shown from its numbers alone."""
    if job.queue != LEAD_QUEUE or job.settled_ms is not None:
        return LoadPlaces(rows=tuple(slice_places(summary, None, {}, is_over=job.settled_ms is not None)))
    snapshot = await read_snapshot(store)
    waits = tuple(obstacle.text for obstacle in run_obstacles(snapshot, job))
    rows = slice_places(summary, snapshot.runs.get(job.id), snapshot.pool.names)
    return LoadPlaces(waits, tuple(rows))


def slice_places(
    summary: Summary | None, run: PlacedRun | None, names: Mapping[str, str], *, is_over: bool = False
) -> list[SlicePlace]:
    """What the numbers say of each assignment, and then the assignments that have no numbers yet. `names`: the node of
    each session."""
    reports: Sequence[SliceReport] = [] if summary is None else summary.slices
    placed = {} if run is None else {(each.call.number, each.row.token): each for each in run.current if each.is_open}
    rows = []
    for report in reports:
        each = placed.pop((report.slice, report.token), None)
        style = _LOST if report.loss else _ENDED if is_over or each is None else _STYLES.get(each.row.status, _ENDED)
        rows.append(
            SlicePlace(
                number=report.slice,
                node=report.node,
                cores=report.processes,
                style=style,
                unit="" if each is None else each.row.id,
                requests=report.requests,
                failed=report.failed,
                gap=duration_text(round(report.gap_s, 1)) if report.gap_s else "",
                replaces=duration_text(round(report.begin_s, 1)) if report.begin_s else "",
                loss=report.loss,
            )
        )
    for (number, _), each in placed.items():
        rows.append(
            SlicePlace(
                number=number,
                node=names.get(each.row.session or "", ""),
                cores=each.call.cores,
                style=_STYLES.get(each.row.status, _ENDED),
                unit=each.row.id,
            )
        )
    if len(rows) <= _SHORT:
        return sorted(rows, key=lambda row: row.number)
    return sorted(rows, key=lambda row: (row.style.kind in ("busy", "off") and not row.replaces, row.number))


__all__ = ["LoadPlaces", "SlicePlace", "SliceStyle", "load_places", "slice_places"]
