"""The parts of the nodes in a run on nodes: one row for each assignment of a slice."""

from __future__ import annotations

import msgspec

from ...clock import duration_text
from ..stats.model import SliceReport, Summary
from .words import NONE, counted, one_line, time_text


class SliceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row, as text."""

    node: str
    cores: str
    requests: str
    failed: str
    clock: str
    """how far the measured clock of the node may be off"""
    late: str
    """between the agreed start and that of its last process"""
    windows: str
    resent: str
    """windows that were lost at first, and sent again"""
    late_windows: str
    """those that came after their time, and were counted in a later one; empty: none"""
    gap: str
    """how long its part of the load was missing"""
    has_failed: bool
    is_lost: bool


def slice_rows(summary: Summary) -> list[SliceRow]:
    """A row for each assignment of a slice; one of them is a replacement if the slice was lost before."""
    return [
        SliceRow(
            node=_node(one),
            cores=f"{one.processes:,}",
            requests=f"{one.requests:,}",
            failed=f"{one.failed:,}",
            clock=NONE if one.clock_doubt_s is None else f"±{time_text(one.clock_doubt_s)}",
            late=time_text(one.start_late_s),
            windows=f"{one.windows:,}",
            resent=f"{one.repaired_windows:,}",
            late_windows=f"{one.late_windows:,}" if one.late_windows else "",
            gap=duration_text(round(one.gap_s, 1)) if one.gap_s else "",
            has_failed=one.failed > 0,
            is_lost=bool(one.loss),
        )
        for one in summary.slices
    ]


def slice_losses(summary: Summary) -> list[str]:
    """What was lost, what took its place, and how a stop of the run was answered."""
    lines = []
    for one in summary.slices:
        if one.loss:
            gap = f"; its load was missing for {duration_text(round(one.gap_s, 1))}" if one.gap_s else ""
            loss = one_line(one.loss)
            # a leader names the slice itself
            lines.append(f"{loss}{gap}" if loss.startswith("slice ") else f"{_node(one)} was lost: {loss}{gap}")
        elif one.begin_s:
            begins = duration_text(round(one.begin_s, 1))
            lines.append(f"{_node(one)} replaced a lost node, from {begins} of the plan on")
    stops = [one.stop for one in summary.slices]
    if any(stops):
        ended = sum(not one.stop and not one.loss for one in summary.slices)
        stopped, unconfirmed = stops.count("stopped"), stops.count("unconfirmed")
        lines.append(f"the stop: {counted(stopped, 'slice')} stopped, {ended} had ended, {unconfirmed} unconfirmed")
    return lines


def slices_title(summary: Summary) -> str:
    """The heading of the table."""
    nodes = {one.node for one in summary.slices}
    cores = summary.header.processes
    return f"{counted(len(nodes), 'node')}, {counted(cores, 'core')}"


def _node(one: SliceReport) -> str:
    return one_line(f"{one.node} (slice {one.slice})")


__all__ = ["SliceRow", "slice_losses", "slice_rows", "slices_title"]
