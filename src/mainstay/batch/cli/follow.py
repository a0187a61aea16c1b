"""Looking on at a batch until it is settled: as a picture, as lines of a log, or as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.live import Live

from ...cli.common import print_line
from ...cli.exits import DONE, NO, PARTIAL
from ...cli.observation import Pace
from ...cli.target import Where
from ...model import Job
from .. import Desk
from . import view
from .progress import BatchStatusView, watched

#: how often a log says something while nothing but counts change
_LOG_EVERY_MS = 10_000


async def follow(desk: Desk, job_id: str, pace: Pace, console: Console) -> Job:
    """Draw it while it goes on; where nobody can see that, a line now and then. The row once it is settled."""
    if not console.is_terminal:
        return await _logged(desk, job_id, pace, lambda line: console.print(line, markup=False))
    with Live(console=console, auto_refresh=False, transient=True) as live:
        async for seen in watched(desk, job_id, pace):
            live.update(view.frame(seen, console.width), refresh=True)
    return seen.status.job


async def follow_as_data(desk: Desk, job_id: str, pace: Pace, where: Where) -> BatchStatusView:
    """A line of JSON for each change."""
    before: dict[str, Any] | None = None
    async for seen in watched(desk, job_id, pace):
        now = view.status_data(seen, where)
        if not view.unchanged(before, now):
            print_line(now)
            before = now
    return seen


async def _logged(desk: Desk, job_id: str, pace: Pace, say: Callable[[str], None]) -> Job:
    status, said_ms = "", 0
    async for seen in watched(desk, job_id, pace):
        job = seen.status.job
        if job.status != status or seen.now_ms - said_ms >= _LOG_EVERY_MS:
            say(view.progress_line(seen))
            status, said_ms = job.status, seen.now_ms
    return seen.status.job


def code_of(status: str) -> int:
    """How a command ends that waited for a batch, or looked at its outputs."""
    return {"succeeded": DONE, "partial": PARTIAL}.get(status, NO)
