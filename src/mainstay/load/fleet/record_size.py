"""What keeps the record of a run small: it is stored with each start and each end of a load, and has to fit, however
many workflows, steps and machines a run has.

Of a load that is over, a successor of the leader needs the sums alone. Counts are always exact. If the sums of many
steps are too large, their histograms get wider buckets, and a successor says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from ..engine.messages import WorkflowReport, WorkflowsDone
from ..stats.accounts import Account
from ..stats.histogram import coarser, error_of
from ..stats.model import MetricStats, Sketch, StepStats, Window
from .fleet_go import merged_reports
from .messages import encode
from .record import FleetRecord, GoEnd, LostPart

#: bytes of a stored record. It is written every few seconds, with the summary of the run, which may have 512 KiB
RECORD_BYTES = 2 * 1024 * 1024
#: one after the other, until the record fits: how many buckets become one, as a power of two, and whether the phases of
#: calls are kept
_REDUCTIONS = ((1, True), (2, True), (2, False), (3, False), (4, False), (5, False))


def add_end(record: FleetRecord, end: GoEnd) -> None:
    """Record the end of a load, in place of what was recorded of it on the way."""
    earlier = [report for one in record.ends for report in one.slices]
    record.ends = [replace(one, slices=[]) for one in record.ends]
    record.ends.append(replace(end, reports=_merged_ends(end.reports), slices=merged_reports([*earlier, *end.slices])))
    record.gos = [replace(go, tokens=[], nodes=[], begin_s=[]) if go.go == end.go else go for go in record.gos]
    # its sum has them
    record.lost = [_counted(part) if part.go == end.go else part for part in record.lost]


def record_bytes(record: FleetRecord) -> int:
    """The size of a record, as it is stored."""
    return len(encode(record))


def make_room(record: FleetRecord, *, most: int = RECORD_BYTES) -> None:
    """Make a record fit that is too large, with as little loss as possible."""
    if record_bytes(record) <= most:
        return
    record.received = []
    if (size := record_bytes(record)) <= most:
        return
    # half as many buckets take at least half the room; what cannot be enough costs time
    least = math.log2(size / most) - 1
    for level, (bits, phases) in enumerate(_REDUCTIONS, start=1):
        if bits < least or level < min(record.reduced, len(_REDUCTIONS)):
            continue
        record.reduced = max(record.reduced, level)
        record.ends = [replace(end, total=_coarser(end.total, bits, phases=phases)) for end in record.ends]
        record.lost = [replace(part, total=_coarser(part.total, bits, phases=phases)) for part in record.lost]
        if record_bytes(record) <= most:
            return
    record.reduced = len(_REDUCTIONS) + 1
    record.ends = [replace(end, total=None) for end in record.ends]
    record.lost = [_counted(part) for part in record.lost]


def reduction_note(reduced: int) -> str:
    """What a successor of the leader tells the readers of a result about `FleetRecord.reduced`.

    >>> reduction_note(2)
    'its manager changed, and percentiles of workflows that had ended before are within 1.6 %: exact ones were too
    large to be kept'
    """
    if reduced > len(_REDUCTIONS):
        return "its manager changed, and the numbers of workflows that had ended before were too large to be kept"
    bits, phases = _REDUCTIONS[reduced - 1]
    kept = f"percentiles of workflows that had ended before are within {100 * error_of(bits):.2g} %"
    lost = "" if phases else ", and the phases of their calls are unknown"
    return f"its manager changed, and {kept}{lost}: exact ones were too large to be kept"


def _coarser(total: Window | None, bits: int, *, phases: bool) -> Window | None:
    if total is None:
        return None

    def wide(sketch: Sketch | None) -> Sketch | None:
        return None if sketch is None else coarser(sketch, bits)

    def step(stats: StepStats) -> StepStats:
        of_phases = {name: coarser(sketch, bits) for name, sketch in stats.phases.items()} if phases else {}
        wider = (wide(stats.ok), wide(stats.failed), wide(stats.response))
        return replace(stats, ok=wider[0], failed=wider[1], response=wider[2], phases=of_phases)

    def metric(stats: MetricStats) -> MetricStats:
        return replace(stats, values=wide(stats.values))

    return replace(total, steps=[step(one) for one in total.steps], metrics=[metric(one) for one in total.metrics])


def _counted(part: LostPart) -> LostPart:
    """A lost part with the counts of its iterations only."""
    if part.total is None:
        return part
    return replace(part, total=replace(part.total, steps=[], checks=[], metrics=[], examples={}, health={}))


def _merged_ends(reports: Sequence[WorkflowsDone]) -> list[WorkflowsDone]:
    """The reports of all processes as one; none if there are none."""
    if not reports:
        return []
    by_workflow: dict[str, list[WorkflowReport]] = {}
    for one in reports:
        for name, own in one.workflows.items():
            by_workflow.setdefault(name, []).append(own)
    return [
        WorkflowsDone(
            workflows={name: _merged_workflow(parts) for name, parts in by_workflow.items()},
            took=max(one.took for one in reports),
            loaded=max(one.loaded for one in reports),
            late_s=max(one.late_s for one in reports),
        )
    ]


def _merged_workflow(parts: Sequence[WorkflowReport]) -> WorkflowReport:
    accounts = [part.account for part in parts]
    return WorkflowReport(
        iterations=sum(part.iterations for part in parts),
        clean=sum(part.clean for part in parts),
        account=Account(
            open=any(one.open for one in accounts),
            arrivals=sum(one.arrivals for one in accounts),
            dropped=sum(one.dropped for one in accounts),
            begun=sum(one.begun for one in accounts),
            completed=sum(one.completed for one in accounts),
            failed=sum(one.failed for one in accounts),
            aborted=sum(one.aborted for one in accounts),
        ),
        unmade=sum(part.unmade for part in parts),
        refusal=next((part.refusal for part in parts if part.refusal), ""),
        nothing_left=any(part.nothing_left for part in parts),
    )


__all__ = ["RECORD_BYTES", "add_end", "make_room", "record_bytes", "reduction_note"]
