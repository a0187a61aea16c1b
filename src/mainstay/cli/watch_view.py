"""How watching looks: frames that are drawn over each other, and lines for programs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..control.json_view import event_view, job_view
from ..lifecycle import Event, table_of
from ..model import Job, Session
from ..words import age
from . import jobs_view
from .common import coloured, printable
from .stats import in_order
from .watching import ManySeen, OneSeen

#: lines of a frame that are not its story
_AROUND = 8
_LEAST = 5


class OneFrame:
    """The picture of one job; it remembers the story so far."""

    def __init__(self, height: int) -> None:
        self._story: deque[Event] = deque(maxlen=max(_LEAST, height - _AROUND))

    @property
    def told(self) -> int:
        """Events that have a place in it."""
        return self._story.maxlen or _LEAST

    def drawn(self, seen: OneSeen) -> RenderableType:
        """The picture as of now."""
        self._story.extend(seen.fresh)
        job = seen.job
        head = Text(printable(job.name), style="bold").append(" ").append_text(coloured(job.status))
        head.append(f"  {job.id}", style="dim")
        parts: list[RenderableType] = [head, Text(_place(job, seen.sessions, seen.now_ms), style="dim")]
        if (bar := _bar(job, seen.now_ms)) is not None:
            parts.append(bar)
        unseen = self._story[0].seq - 1 if self._story else 0
        if unseen:
            parts.append(Text(f"{unseen} earlier events", style="dim"))
        parts.append(jobs_view.story_table(list(self._story), (), seen.sessions))
        return Group(*parts)


class ManyFrame:
    """The picture of many jobs; it remembers the latest changes."""

    def __init__(self, height: int) -> None:
        self._changes: deque[tuple[str | None, Job]] = deque(maxlen=max(_LEAST, height - _AROUND))

    def drawn(self, seen: ManySeen, queue: str | None) -> RenderableType:
        """The picture as of now."""
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
        quiet = Text("no changes yet; Ctrl-C ends this", style="dim")
        return Group(counts if seen.counts else Text("no jobs yet"), Text(), table if self._changes else quiet)


def one_lines(seen: OneSeen) -> Iterable[dict[str, Any]]:
    """What changed in one job, for programs; the first is the job as it was found."""
    job = seen.job
    if seen.first:
        yield {"type": "job", **_job(job)}
        return
    for event in seen.fresh:
        yield {"type": "event", "id": job.id, "status": event.to, **asdict(event_view(event))}
    if seen.progressed:
        yield {"type": "progress", "id": job.id, "status": job.status, "progress": _progress(job)}


def many_lines(seen: ManySeen) -> Iterable[dict[str, Any]]:
    """What changed among many, for programs."""
    for before, job in seen.changed:
        yield {"type": "job", **_job(job), "was": before}
    if seen.counts_changed:
        yield {"type": "counts", "at_ms": seen.now_ms, "counts": seen.counts}


def _job(job: Job) -> dict[str, Any]:
    return {**asdict(job_view(job)), "at_ms": job.changed_ms, "progress": _progress(job)}


def _progress(job: Job) -> dict[str, Any] | None:
    if job.progress is None:
        return None
    return {"done": job.progress.done, "total": job.progress.total, "message": job.progress.message}


def _place(job: Job, sessions: Mapping[str, Session], now_ms: int) -> str:
    """Where it is, in one line."""
    state = table_of(job.parent).get(job.status)
    parts = [f"queue {printable(job.queue)}"]
    if job.session is not None:
        session = sessions.get(job.session)
        who = session.worker if session is not None and session.worker else job.session
        since = job.claimed_ms if job.claimed_ms is not None else job.changed_ms
        parts.append(f"held by {printable(who)} for {age(now_ms - since)}")
    elif job.awaits:
        parts.append("waits for other jobs")
    elif state is not None and not state.settled and job.due_ms > now_ms:
        parts.append(f"due in {age(job.due_ms - now_ms)}")
    elif state is not None and not state.settled:
        parts.append(f"waits for {age(now_ms - job.due_ms)}")
    if job.reason:
        parts.append(printable(job.reason))
    return ", ".join(parts)


def _bar(job: Job, now_ms: int) -> RenderableType | None:
    progress = job.progress
    if progress is None:
        return None
    row: Sequence[RenderableType] = ()
    said = f" {printable(progress.message)}" if progress.message else ""
    ago = f" ({age(now_ms - job.progress_ms)} ago)" if job.progress_ms else ""
    if progress.total:
        share = 100 * progress.done / progress.total
        row = (
            ProgressBar(total=progress.total, completed=min(progress.done, progress.total), width=30),
            Text(f"{progress.done:g} of {progress.total:g}, {share:.0f}%{said}{ago}"),
        )
    else:
        row = (Text(f"{progress.done:g}{said}{ago}"),)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_row(*row)
    return grid
