"""The output of `jobs watch`: frames that replace each other, and JSON lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import asdict
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..control import event_view, job_view
from ..lifecycle import Event, table_of
from ..model import Job
from ..words import SessionNames, age
from . import jobs_view
from .common import coloured, printable
from .observation import JobObservation, JobsObservation
from .stats import in_order

#: lines of a frame beside its events
_AROUND = 8
_LEAST = 5


class JobFrame:
    """Draws one job, with its latest events."""

    def __init__(self, height: int) -> None:
        self._events: deque[Event] = deque(maxlen=max(_LEAST, height - _AROUND))

    @property
    def capacity(self) -> int:
        """The number of events that fit in a frame."""
        return self._events.maxlen or _LEAST

    def draw(self, seen: JobObservation) -> RenderableType:
        """The frame for an observation."""
        self._events.extend(seen.new_events)
        job, names = seen.job, SessionNames(seen.sessions)
        head = Text(printable(job.name), style="bold").append(" ").append_text(coloured(job.status))
        head.append(f"  {job.id}", style="dim")
        parts: list[RenderableType] = [head, Text(_summary(job, names, seen.now_ms), style="dim")]
        if (bar := _bar(job, seen.now_ms)) is not None:
            parts.append(bar)
        earlier = self._events[0].seq - 1 if self._events else 0
        if earlier:
            parts.append(Text(f"{earlier} earlier events", style="dim"))
        parts.append(jobs_view.story_table(list(self._events), (), names))
        return Group(*parts)


class JobsFrame:
    """Draws the counts of jobs, and the latest changes."""

    def __init__(self, height: int) -> None:
        self._changes: deque[tuple[str | None, Job]] = deque(maxlen=max(_LEAST, height - _AROUND))

    def draw(self, seen: JobsObservation, queue: str | None) -> RenderableType:
        """The frame for an observation."""
        self._changes.extend(seen.changed)
        counts = Text(f"queue {printable(queue)}: " if queue else "")
        for place, status in enumerate(in_order(seen.counts)):
            counts.append(", " if place else "").append(f"{seen.counts[status]:,} ").append_text(coloured(status))
        table = Table.grid(padding=(0, 2, 0, 0))
        for _ in range(4):
            table.add_column(overflow="fold")
        for before, job in reversed(self._changes):
            move = Text() if before is None else Text(printable(before), style="dim").append(" → ")
            ago = Text(f"{age(seen.now_ms - job.changed_ms)} ago", style="dim")
            name = Text(printable(job.name))
            table.add_row(ago, Text(job.id, style="dim"), name, move.append_text(coloured(job.status)))
        no_changes = Text("no changes yet; Ctrl-C ends this", style="dim")
        return Group(counts if seen.counts else Text("no jobs yet"), Text(), table if self._changes else no_changes)


def job_lines(seen: JobObservation) -> Iterable[dict[str, Any]]:
    """The changes of one job as JSON values; the first is the whole job."""
    job = seen.job
    if seen.first:
        yield {"type": "job", **_job(job)}
        return
    for event in seen.new_events:
        yield {"type": "event", "id": job.id, "status": event.to, **asdict(event_view(event))}
    if seen.progressed:
        yield {"type": "progress", "id": job.id, "status": job.status, "progress": _progress(job)}


def jobs_lines(seen: JobsObservation) -> Iterable[dict[str, Any]]:
    """The changes of many jobs as JSON values."""
    for before, job in seen.changed:
        yield {"type": "job", **_job(job), "was": before}
    if seen.counts_changed:
        yield {"type": "counts", "at_ms": seen.now_ms, "counts": seen.counts}


def _job(job: Job) -> dict[str, Any]:
    return {**asdict(job_view(job)), "at_ms": job.changed_ms, "progress": _progress(job)}


def _progress(job: Job) -> dict[str, Any] | None:
    return None if job.progress is None else asdict(job.progress)


def _summary(job: Job, names: SessionNames, now_ms: int) -> str:
    """Its queue, what holds it up or runs it, and the reason, in one line."""
    state = table_of(job.parent).get(job.status)
    parts = [f"queue {printable(job.queue)}"]
    if job.session is not None:
        since = job.claimed_ms if job.claimed_ms is not None else job.changed_ms
        parts.append(f"held by {printable(names[job.session])} for {age(now_ms - since)}")
    elif job.awaits:
        parts.append("waits for other jobs")
    elif job.awaits_cores:
        parts.append("waits for cores")
    elif state is not None and not state.settled and job.due_ms > now_ms:
        parts.append(f"due in {age(job.due_ms - now_ms)}")
    elif state is not None and not state.settled:
        parts.append(f"has waited for {age(now_ms - job.due_ms)}")
    if job.reason:
        parts.append(printable(job.reason))
    return ", ".join(parts)


def _bar(job: Job, now_ms: int) -> RenderableType | None:
    progress = job.progress
    if progress is None:
        return None
    row: Sequence[RenderableType] = ()
    message = f" {printable(progress.message)}" if progress.message else ""
    ago = f" ({age(now_ms - job.progress_ms)} ago)" if job.progress_ms else ""
    if progress.total:
        share = 100 * progress.done / progress.total
        row = (
            ProgressBar(total=progress.total, completed=min(progress.done, progress.total), width=30),
            Text(f"{progress.done:g} of {progress.total:g}, {share:.0f}%{message}{ago}"),
        )
    else:
        row = (Text(f"{progress.done:g}{message}{ago}"),)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_row(*row)
    return grid
