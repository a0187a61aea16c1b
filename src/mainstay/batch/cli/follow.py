"""Following a batch until it is settled: as a picture, as lines of a log, or as data."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.live import Live

from ...cli import Where, print_line
from ...cli.exits import DONE, NO, PARTIAL
from ...cli.observation import Pace
from ...clock import seconds
from .. import BatchService
from . import view
from .progress import BatchProgress, watched

_EVERY_S = 0.5
#: time between two lines of a log while only counts change
_LOG_EVERY_MS = 10_000


def pace_of(for_: str | None) -> Pace:
    """How often to look, and until when, by the option `--for`."""
    return Pace(every_s=_EVERY_S, for_s=None if for_ is None else seconds(for_, field="for"))


async def follow(service: BatchService, job_id: str, pace: Pace, console: Console) -> BatchProgress:
    """Draw the progress of a batch until it is settled; without a terminal, print a line now and then."""
    if not console.is_terminal:
        return await _log(service, job_id, pace, console)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        async for progress in watched(service, job_id, pace):
            live.update(view.frame(progress, console.width), refresh=True)
    return progress


async def follow_as_data(service: BatchService, job_id: str, pace: Pace, where: Where) -> BatchProgress:
    """Print a line of JSON for each change."""
    before: dict[str, Any] | None = None
    async for progress in watched(service, job_id, pace):
        now = view.progress_data(progress, where)
        if not view.unchanged(before, now):
            print_line(now)
            before = now
    return progress


async def _log(service: BatchService, job_id: str, pace: Pace, console: Console) -> BatchProgress:
    status, logged_ms = "", 0
    async for progress in watched(service, job_id, pace):
        job = progress.status.job
        if job.status != status or progress.now_ms - logged_ms >= _LOG_EVERY_MS:
            console.print(view.progress_line(progress), markup=False)
            status, logged_ms = job.status, progress.now_ms
    return progress


def exit_code_of(status: str) -> int:
    """The exit code of a command that waited for a batch, or validated its outputs."""
    return {"succeeded": DONE, "partial": PARTIAL}.get(status, NO)
