"""Carries out `mainstay load watch`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec

from ...cli import ClusterWhere, aside, connected, full_id
from ...cli.exits import INTERRUPTED
from ...errors import InvalidInput
from ..cluster_run import local_cluster_folder
from ..fleet.follower import FollowedRun
from ..fleet.run_source import BusRunSource, RunSource
from ..kind import KIND
from ..run_clusters import HTTP, HttpCluster
from .execution import InterruptNotes, Interrupts, chosen_ui, code_of, show_result
from .follow_display import FollowDisplay
from .live import Display

_NOTES = InterruptNotes(
    ending="leaving: the run goes on", giving_up="leaving: the run goes on", leaving="leaving at once"
)


def watch_run(where: ClusterWhere, job_id: str, *, ui: str | None, strict: bool) -> int:
    """Follow a run to its end, show its result, and return the exit code."""
    console = Display(highlight=False)
    shown = chosen_ui(ui, console, quiet=False)
    followed, left = asyncio.run(_followed(where, job_id, shown, console))
    job, summary = followed.job, followed.summary
    if not followed.is_settled:
        aside(f"left while job {job.id} is {job.status}")
    if summary is None:
        if left:
            return INTERRUPTED
        raise followed.failure(job.id)
    show_result(summary, None, quiet=shown == "none", strict=strict)
    return INTERRUPTED if left else code_of(summary, strict=strict)


async def _followed(where: ClusterWhere, job_id: str, ui: str, console: Display) -> tuple[FollowedRun, bool]:
    interrupts = Interrupts(notes=_NOTES)
    async with _source(where, job_id) as source:
        with FollowDisplay.shown(ui, console, interrupts, hint="Ctrl-C leaves; the run goes on") as display:
            # the first Ctrl-C leaves: the run is that of others
            followed = await display.follower(source).follow(stop=asyncio.Event(), give_up=interrupts.stop)
    return followed, interrupts.pressed


@contextlib.asynccontextmanager
async def _source(where: ClusterWhere, job_id: str) -> AsyncIterator[RunSource]:
    """The run that is named, where it is named, or in the cluster that was started in this folder."""
    if where.cluster.startswith(HTTP):
        async with HttpCluster(where.cluster) as cluster:
            source = cluster.source(job_id)
            await source.job()
            yield source
        return
    if not (where.store or where.app or where.cluster):
        where = msgspec.structs.replace(where, cluster=local_cluster_folder())
    async with connected(where) as to:
        job = await to.control.jobs.get(await full_id(to.control.store, job_id))
        if job.kind != KIND.name:
            raise InvalidInput("job", f"{job.id} ({job.name}) is a {job.kind} job, not a load test")
        yield BusRunSource(to.control, job.id)


__all__ = ["watch_run"]
