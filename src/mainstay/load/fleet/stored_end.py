"""The end of a go as a node has stored it with its slice: what is known of an assignment that is gone, if no leader has
asked it."""

from __future__ import annotations

import logging

from ..stats.model import SliceReport
from .fleet_context import FleetContext
from .led_slice import LedSlice
from .message_checks import STORED_S, end_fault, load_buckets
from .messages import SliceEnd
from .received_windows import ReceivedWindows
from .record import GoRecord

log = logging.getLogger("mainstay.load")


async def stored_end(fleet: FleetContext, own: LedSlice, recorded: GoRecord, begin_s: float) -> SliceEnd | None:
    """The end of this go in the assignment that was recorded, with the sum of its windows. `begin_s`: the time of the
    plan at which it began."""
    end = await fleet.assignments.end_of(own.number, recorded.tokens[own.number])
    if end is None or end.go != recorded.go or not end.began or end.total is None:
        return None
    loaded_s = max(0.0, fleet.clock.now_ms() / 1000 - recorded.wall) + STORED_S
    fault = end_fault(
        end,
        go=recorded.go,
        upto=end.windows,
        longest_s=loaded_s,
        workflows=recorded.workflows,
        buckets=load_buckets(recorded.wall + begin_s, loaded_s),
        processes=own.numbers,
    )
    if fault:
        log.warning("job=%s %s: the stored end of its load cannot be true: %s", fleet.job, own.name, fault)
    return None if fault else end


def stored_report(own: LedSlice, end: SliceEnd, recorded: GoRecord, begin_s: float) -> SliceReport:
    """The facts of that assignment."""
    received = _received(end, recorded, begin_s)
    return SliceReport(
        slice=own.number,
        token=recorded.tokens[own.number],
        node=recorded.nodes[own.number],
        processes=own.processes,
        requests=received.requests,
        failed=received.failed,
        begin_s=begin_s,
        start_late_s=max((report.late_s for report in end.reports), default=0.0),
        windows=received.count,
    )


def known_s(end: SliceEnd, recorded: GoRecord, begin_s: float) -> float:
    """The time of the plan up to which its numbers are known."""
    return _received(end, recorded, begin_s).known_s


def _received(end: SliceEnd, recorded: GoRecord, begin_s: float) -> ReceivedWindows:
    received = ReceivedWindows(lambda _: None, wall_s=recorded.wall, begin_s=begin_s, upto=end.windows)
    if end.total is not None:
        received.add_sum(end.total)
    return received


__all__ = ["known_s", "stored_end", "stored_report"]
