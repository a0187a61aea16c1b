"""How a batch looks while it goes on: a picture that is drawn over and over, and data for programs."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ...cli.common import coloured, print_command, printable
from ...cli.target import Where
from ...clock import duration_text
from ...control.explain import Advice
from ...lifecycle import time_text
from .. import Status, Tallied
from ..report.model import advice_for
from ..spec import Begun
from .progress import BatchStatusView

_BAR = 24
_NARROW = 80
#: from here on the time of the end says more than what is left
_LONG_S = 600


def frame(seen: BatchStatusView, width: int) -> RenderableType:
    """The picture as of now."""
    status = seen.status
    job, spec, units = status.job, status.spec, status.units
    head = Text(printable(spec.study), style="bold").append(" ").append_text(coloured(job.status))
    head.append(f"  {job.id}", style="dim")
    bars = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(4):
        bars.add_column(no_wrap=True)
    bar = _BAR if width >= _NARROW else 10
    bars.add_row("units", _bar(units.done, spec.units, bar), _count(units.done, spec.units), _speed(seen))
    there = status.outputs_there
    bars.add_row("outputs", _bar(there, spec.expected, bar), _count(there, spec.expected), "")
    parts: list[RenderableType] = [head, bars, counts(status)]
    if (outside := status.outside) is not None:
        how = outside.state if outside.exit_code is None else f"{outside.state} with {outside.exit_code}"
        parts.append(Text(printable(f"{outside}: {how or 'about to be started'}"), overflow="fold"))
    if status.trouble:
        parts.append(Text(printable(status.trouble), style="yellow", overflow="fold"))
    if status.validation is not None and status.validation.mixed:
        parts.append(Text(status.validation.mixed, style="yellow", overflow="fold"))
    if now := _now(seen):
        parts.append(Text(printable(now), style="dim", overflow="ellipsis", no_wrap=True))
    return Group(*parts)


def counts(status: Status) -> Text:
    """Its units by what became of them, in one line."""
    units = status.units
    if not status.planned and not units.done:
        return Text("not begun yet" if not status.job.token else "finding out which units are to run", style="dim")
    failed = Text(f"✗ {units.failed:,} failed", style="red") if units.failed else Text("0 failed", style="dim")
    line = Text(f"{units.succeeded:,} run, {units.there + units.skipped:,} there before, ").append_text(failed)
    for n, what in ((units.running, "at work"), (units.waiting, "waiting"), (units.cancelled, "ended early")):
        if n:
            line.append(f", {n:,} {what}")
    for name, one in status.aggregations.items():
        line.append(f"\n{printable(name)}: {made_text(one)}, {one.failed:,} failed")
        line.append(f", {one.idle:,} not made, for their inputs are incomplete" if one.idle else "")
    return line


def made_text(one: Tallied) -> str:
    """How many of an aggregation were made, apart from those whose outputs were there."""
    before = one.there + one.skipped
    return f"{one.succeeded:,} made" + (f", {before:,} there before" if before else "")


def _now(seen: BatchStatusView) -> str:
    status = seen.status
    if seen.settled:
        return status.job.reason or ""
    if seen.at_work:
        return f"at work: {', '.join(seen.at_work)}"
    waits = "" if status.trouble else status.waits
    if status.job.status == "validating":
        return waits or "looking at the outputs"
    return waits or status.job.reason or ""


def _bar(done: int, total: int, width: int) -> ProgressBar:
    return ProgressBar(total=max(1, total), completed=min(done, total), width=width)


def _count(done: int, total: int) -> str:
    share = 100 if not total else int(100 * done / total)  # 100 only when all of it is done
    return f"{done:,} of {total:,}, {share}%"


def _speed(seen: BatchStatusView) -> str:
    if seen.rate is None:
        return ""
    if not seen.left_s:
        return f"{seen.rate:,.1f}/s"
    left = f"{seen.rate:,.1f}/s, {duration_text(max(1, round(seen.left_s)))} left"
    if seen.left_s < _LONG_S:
        return left
    return f"{left}, until {time_text(_ends_ms(seen) or 0)[11:16]}Z"


def _ends_ms(seen: BatchStatusView) -> int | None:
    return None if seen.left_s is None else seen.now_ms + round(seen.left_s * 1000)


def progress_line(seen: BatchStatusView) -> str:
    """The same in one line, for a log."""
    units, spec = seen.status.units, seen.status.spec
    speed = f", {_speed(seen)}" if seen.rate else ""
    done = f"{units.done:,} of {spec.units:,} units"
    trouble = f"; {printable(seen.status.trouble)}" if seen.status.trouble else ""
    return f"{seen.status.job.status}: {done}, {units.failed:,} failed{speed}{trouble}"


def status_data(seen: BatchStatusView, where: Where) -> dict[str, Any]:
    """For programs."""
    status = seen.status
    job, validation = status.job, status.validation
    return {
        "type": "batch",
        "id": job.id,
        "name": job.name,
        "status": job.status,
        "settled": seen.settled,
        "reason": job.reason,
        "version": job.version,
        "at_ms": seen.now_ms,
        "group": status.group,
        "outside": _outside_data(status.outside),
        "planned": status.planned,
        "units": {"total": status.spec.units, **tally_data(status.units)},
        "aggregations": {name: tally_data(one) for name, one in status.aggregations.items()},
        "outputs": {"expected": status.spec.expected, "there": status.outputs_there},
        "at_work": list(seen.at_work),
        "units_per_s": seen.rate,
        "left_s": seen.left_s,
        "ends_ms": _ends_ms(seen),
        "waits": status.waits,
        "trouble": status.trouble,
        "validation": None if validation is None else msgspec.to_builtins(validation),
        "advice": [msgspec.to_builtins(one) for one in advice(seen, where)],
    }


def _outside_data(begun: Begun | None) -> dict[str, Any] | None:
    if begun is None:
        return None
    return {"name": begun.name, "handle": begun.handle, "state": begun.state, "exit_code": begun.exit_code}


def tally_data(units: Tallied) -> dict[str, Any]:
    """Counts of units, for programs."""
    return {**msgspec.structs.asdict(units), "done": units.done}


def unchanged(before: dict[str, Any] | None, now: dict[str, Any]) -> bool:
    """Whether nothing but the time has passed."""
    passing = {"at_ms", "units_per_s", "left_s", "ends_ms"}
    return before is not None and all(before[name] == now[name] for name in now if name not in passing)


def advice(seen: BatchStatusView, where: Where) -> list[Advice]:
    """What to do about it, as it is typed here."""
    status = seen.status
    lacking = 0 if status.validation is None else status.spec.expected - status.validation.present
    return here(advice_for(status.job.id, status.job.status, lacking=lacking), where)


def here(told: list[Advice], where: Where) -> list[Advice]:
    """Commands on the same store."""
    return [Advice(why=one.why, command=where.again(one.command)) for one in told]


def show_advice(told: list[Advice], console: Console) -> None:
    """Commands to try."""
    if not told:
        return
    console.print()
    console.print(Text("what to do", style="bold"))
    for one in told:
        console.print(Padding(Text(f"{one.why}:"), (0, 0, 0, 2)))
        print_command(one.command, console, indent=4)
