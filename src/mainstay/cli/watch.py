"""`mainstay jobs watch`: show jobs while they change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console, RenderableType
from rich.live import Live

from ..clock import seconds
from ..errors import InvalidInput
from ..stores import JobStore
from . import completion, watch_view
from .common import JsonOption, print_line
from .exits import DONE, NO
from .filters import Filters
from .ids import full_id
from .observation import JobsObservation, Pace, observe_job, observe_jobs

T = TypeVar("T")

_SHORTEST_S = 0.05


async def watch(
    store: JobStore,
    filters: Filters,
    job_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="Id of the job, or its first or last 8 or more characters.",
            autocompletion=completion.jobs,
        ),
    ] = None,
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="Time between two reads of the store; 50ms or more.")
    ] = "500ms",
    for_: Annotated[str | None, typer.Option("--for", metavar="TIME", help="Stop watching after this time.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-l", min=1, max=200, help="How many of the newest jobs to watch.")
    ] = 50,
    as_json: JsonOption = False,
) -> int:
    """Watch one job until it settles, or the newest jobs until you press Ctrl-C.

    In a pipe, or with --json, the command prints one JSON value per line: first the job, then each event and each
    progress report. Without an ID: the counts by state, then each job that was submitted or changed.

    Exit codes: 0 the job succeeded, 1 it settled otherwise, 2 error, or not settled within --for, 130 Ctrl-C.

    [bold]Examples[/bold]

      mainstay jobs watch 4de452e6b59d && echo done
      mainstay jobs watch 4de452e6b59d --for 10m --json | jq .status
      mainstay jobs watch --queue mail
    """
    pace = Pace(every_s=_every(every), for_s=None if for_ is None else seconds(for_, field="for"))
    console = Console(highlight=False)
    lines = as_json or not console.is_terminal
    if job_id is not None and filters.any:
        raise InvalidInput("jobs", "give an id or filters, not both")
    if job_id is None:
        await _watch_many(store, filters, pace, limit, console, lines=lines)
        return DONE
    succeeded = await follow(store, await full_id(store, job_id), pace, console, lines=lines)
    return DONE if succeeded else NO


async def follow(store: JobStore, job_id: str, pace: Pace, console: Console, *, lines: bool) -> bool:
    """Show a job until it settles; whether it succeeded."""
    frame = watch_view.JobFrame(console.height)
    # the first line for a program is the job; its events can be read with `jobs events`
    observations = observe_job(store, job_id, pace, history=0 if lines else frame.capacity)
    status = ""
    async for each in _shown(observations, frame.draw, watch_view.job_lines, console, lines=lines):
        status = each.job.status
    return status == "succeeded"


async def _watch_many(
    store: JobStore, filters: Filters, pace: Pace, limit: int, console: Console, *, lines: bool
) -> None:
    frame = watch_view.JobsFrame(console.height)
    observations = observe_jobs(store, await filters.query(store), pace, limit=limit)

    def draw(each: JobsObservation) -> RenderableType:
        return frame.draw(each, filters.queue)

    async for _ in _shown(observations, draw, watch_view.jobs_lines, console, lines=lines):
        pass


async def _shown(
    observations: AsyncIterator[T],
    draw: Callable[[T], RenderableType],
    to_lines: Callable[[T], Iterable[Any]],
    console: Console,
    *,
    lines: bool,
) -> AsyncIterator[T]:
    """Show observations and pass them on: as lines, or as frames that replace each other."""
    if lines:
        async for each in observations:
            for line in to_lines(each):
                print_line(line)
            yield each
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        async for each in observations:
            live.update(draw(each), refresh=True)
            yield each


def _every(text: str) -> float:
    every_s = seconds(text, field="every")
    if every_s < _SHORTEST_S:
        raise InvalidInput("every", f"{text!r} is too short; use 50ms or more")
    return every_s
