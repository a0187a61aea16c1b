"""The progress of a batch: a picture that is redrawn, a line of a log, and data for programs."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ...cli import Where, coloured, printable
from ...clock import duration_text
from ...control.explain import Advice
from ...lifecycle import time_text
from .. import BatchStatus
from ..advice import batch_advice
from ..json_view import status_data
from ..report.text import made_text
from ..spec import OutsideRecord
from .progress import BatchProgress

_BAR = 24
_NARROW = 80
#: from here on the expected end is shown besides the time left
_LONG_S = 600


def frame(progress: BatchProgress, width: int) -> RenderableType:
    """The current picture."""
    status = progress.status
    job, spec, units = status.job, status.spec, status.units
    head = Text(printable(spec.study), style="bold").append(" ").append_text(coloured(job.status))
    head.append(f"  {job.id}", style="dim")
    bars = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(4):
        bars.add_column(no_wrap=True)
    bar = _BAR if width >= _NARROW else 10
    bars.add_row("units", _bar(units.done, spec.units, bar), _count(units.done, spec.units), _speed(progress))
    present = status.outputs_there
    bars.add_row("outputs", _bar(present, spec.expected, bar), _count(present, spec.expected), "")
    parts: list[RenderableType] = [head, bars, counts(status)]
    if (outside := status.outside) is not None:
        how = outside.state if outside.exit_code is None else f"{outside.state} with {outside.exit_code}"
        parts.append(Text(printable(f"{outside}: {how or 'about to be started'}"), overflow="fold"))
    if status.trouble:
        parts.append(Text(printable(status.trouble), style="yellow", overflow="fold"))
    if status.validation is not None and status.validation.mixed:
        parts.append(Text(status.validation.mixed, style="yellow", overflow="fold"))
    if now := _now(progress):
        parts.append(Text(printable(now), style="dim", overflow="ellipsis", no_wrap=True))
    return Group(*parts)


def counts(status: BatchStatus) -> Text:
    """The units by state, in one line; another line for each aggregation."""
    units = status.units
    if not status.planned and not units.done:
        return Text("not begun yet" if not status.job.token else "planning its units", style="dim")
    failed = Text(f"✗ {units.failed:,} failed", style="red") if units.failed else Text("0 failed", style="dim")
    line = Text(f"{units.succeeded:,} run, {units.there + units.skipped:,} already present, ").append_text(failed)
    for n, what in ((units.running, "at work"), (units.waiting, "waiting"), (units.cancelled, "ended early")):
        if n:
            line.append(f", {n:,} {what}")
    for name, one in status.aggregations.items():
        line.append(f"\n{printable(name)}: {made_text(one)}, {one.failed:,} failed")
        line.append(f", {one.idle:,} not made: their inputs are incomplete" if one.idle else "")
    return line


def _now(progress: BatchProgress) -> str:
    status = progress.status
    if progress.settled:
        return status.job.reason or ""
    if progress.at_work:
        return f"at work: {', '.join(progress.at_work)}"
    waits = "" if status.trouble else status.waits
    if status.job.status == "validating":
        return waits or "validating the outputs"
    return waits or status.job.reason or ""


def _bar(done: int, total: int, width: int) -> ProgressBar:
    return ProgressBar(total=max(1, total), completed=min(done, total), width=width)


def _count(done: int, total: int) -> str:
    share = 100 if not total else int(100 * done / total)  # rounded down: 100 means all
    return f"{done:,} of {total:,}, {share}%"


def _speed(progress: BatchProgress) -> str:
    if progress.rate is None:
        return ""
    if not progress.left_s:
        return f"{progress.rate:,.1f}/s"
    left = f"{progress.rate:,.1f}/s, {duration_text(max(1, round(progress.left_s)))} left"
    if progress.left_s < _LONG_S:
        return left
    return f"{left}, until {time_text(_ends_ms(progress) or 0)[11:16]}Z"


def _ends_ms(progress: BatchProgress) -> int | None:
    return None if progress.left_s is None else progress.now_ms + round(progress.left_s * 1000)


def progress_line(progress: BatchProgress) -> str:
    """The same in one line, for a log."""
    units, spec = progress.status.units, progress.status.spec
    speed = f", {_speed(progress)}" if progress.rate else ""
    done = f"{units.done:,} of {spec.units:,} units"
    trouble = f"; {printable(progress.status.trouble)}" if progress.status.trouble else ""
    return f"{progress.status.job.status}: {done}, {units.failed:,} failed{speed}{trouble}"


def progress_data(progress: BatchProgress, where: Where) -> dict[str, Any]:
    """The progress of a batch, for programs."""
    status = progress.status
    return {
        "type": "batch",
        **status_data(status, now_ms=progress.now_ms),
        "outside": _outside_data(status.outside),
        "at_work": list(progress.at_work),
        "units_per_s": progress.rate,
        "left_s": progress.left_s,
        "ends_ms": _ends_ms(progress),
        "trouble": status.trouble,
        "advice": [{"why": one.why, "command": where.again(one.command)} for one in advice(progress)],
    }


def _outside_data(record: OutsideRecord | None) -> dict[str, Any] | None:
    if record is None:
        return None
    return {name: getattr(record, name) for name in ("name", "handle", "state", "exit_code")}


def unchanged(before: dict[str, Any] | None, now: dict[str, Any]) -> bool:
    """Whether only the time has changed."""
    passing = {"at_ms", "units_per_s", "left_s", "ends_ms"}
    return before is not None and all(before[name] == now[name] for name in now if name not in passing)


def advice(progress: BatchProgress) -> list[Advice]:
    """What the operator can do now."""
    status = progress.status
    lacking = 0 if status.validation is None else status.spec.expected - status.validation.present
    return batch_advice(status.job.id, status.job.status, lacking=lacking)
