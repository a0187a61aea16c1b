"""Carries out `mainstay load run` on the nodes of a cluster: submits the test, follows it, reports it, and returns the
exit code."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import typer
from rich.console import Console

from ...cli import aside, key_value, local_actor, shell_word
from ...cli.exits import DONE, INTERRUPTED, NO
from ...errors import InvalidInput, StoreUnavailable
from ...stores import shown_url
from ..cluster_run import CLUSTER_VARIABLE, local_cluster_folder, place_of_cluster
from ..fleet import FleetDemand
from ..fleet.follower import FollowedRun
from ..fleet.run_source import LedJob
from ..local_run import app_of
from ..outputs import Output, RunOutputs
from ..plan import LoadOptions
from ..planned_run import PlannedRun
from ..report.files import OF_STEPS
from ..run_clusters import HTTP, PreparedRun, SubmittedRun, run_cluster
from ..stats.model import Summary
from .execution import (
    InterruptNotes,
    Interrupts,
    chosen_ui,
    code_of,
    file_outputs,
    planned_file,
    show_result,
)
from .files import to_stdout
from .follow_display import FollowDisplay
from .live import Display
from .options import ClusterRunOptions, RunOptions

T = TypeVar("T")

_NOTES = InterruptNotes(
    ending="ending: the job is cancelled; its nodes finish the iterations in flight; press Ctrl-C again to leave",
    # whether the cancel was taken is in the status that is printed last
    giving_up="leaving: what the cluster has accepted goes on without this command",
    leaving="leaving at once",
)


class ClusterPlace(NamedTuple):
    """A cluster as the user names it."""

    address: str
    """that of a server of it, or the URL of its store for an operator"""
    option: str
    """what finds it again on a command line: without a password"""

    @property
    def is_http(self) -> bool:
        return self.address.startswith(HTTP)


def cluster_place(named: str | None) -> ClusterPlace:
    """The cluster of an option, of the environment, or the one that `mainstay cluster up` started here."""
    address = place_of_cluster(named or "")
    if named is None:
        # the next command reads the environment as well
        option = "" if os.environ.get(CLUSTER_VARIABLE) else f" --cluster {local_cluster_folder()}"
    else:
        option = f" --cluster {shell_word(named)}"
    return ClusterPlace(address, option)


def run_on_nodes(
    file: Path, options: LoadOptions, given: RunOptions, asked: ClusterRunOptions, paths: dict[str, str]
) -> int:
    """Submit the test, follow it to its end, write the reports (kind -> path), and return the exit code."""
    _check(given, paths)
    printed = to_stdout(paths)
    console = Display(stderr=printed is not None, highlight=False)
    ui = "none" if given.detach else chosen_ui(given.ui, console, quiet=printed is not None)
    files = file_outputs(paths, strict=given.strict)
    demand = demand_of(asked)
    place = cluster_place(asked.cluster)
    planned = planned_file(file, options, given.name)
    session = _Session(planned, demand, place, asked.job_options(), ui, console)
    if given.detach:
        handle = asyncio.run(session.detached())
        typer.echo(handle.id)
        aside(f"{_submitted(handle)}; {_report(handle.id, place)}")
        return DONE
    followed, pressed = asyncio.run(session.run())
    if followed is None:
        aside("nothing was submitted")
        return INTERRUPTED
    summary = followed.summary
    if not followed.is_settled:
        aside(_left(followed.job, place))
    if summary is None:
        return _without_numbers(followed, planned, pressed=pressed)
    summary = asyncio.run(_written(files, summary))
    if not Path(summary.stream).is_file():
        # the leader has recorded it on its own machine
        summary = msgspec.structs.replace(summary, stream="")
    show_result(summary, printed, quiet=ui == "none", strict=given.strict)
    return INTERRUPTED if pressed else code_of(summary, strict=given.strict)


def demand_of(asked: ClusterRunOptions) -> FleetDemand:
    """What the options ask of the nodes. The rules for the values are those of the library."""
    labels = dict(
        key_value(word, field="label", form="name=value; write it like zone=eu") for word in asked.label or ()
    )
    values: dict[str, Any] = {
        "nodes": asked.nodes,
        "cores": asked.cores,
        "share": asked.share or "auto",
        "labels": labels,
        "on_loss": asked.on_loss or "replace",
        "wait": asked.wait,
        "include": tuple(asked.include or ()),
        "data": tuple(asked.data or ()),
    }
    return FleetDemand(**values)


def _check(given: RunOptions, paths: dict[str, str]) -> None:
    if given.store is not None:
        raise InvalidInput("store", "a run on nodes is a job of the cluster; leave it out")
    if given.queue is not None:
        raise InvalidInput("queue", "a run on nodes waits in a queue of its own; leave it out")
    if given.detach and (paths or given.ui or given.strict):
        raise InvalidInput("detach", "a detached run has no display; leave out --ui, --strict and the reports")
    for kind in ("ndjson", *OF_STEPS):
        if kind in paths:
            rule = "needs every window, and some may be lost on their way from a cluster to this machine"
            raise InvalidInput(kind, f"{rule}; use --json or --html, whose numbers are exact")


class _Session:
    """One command: an app in front of the cluster, and what shows the run."""

    def __init__(
        self,
        planned: PlannedRun,
        demand: FleetDemand,
        place: ClusterPlace,
        options: dict[str, Any],
        ui: str,
        console: Console,
    ) -> None:
        self._planned = planned
        self._demand = demand
        self._options = options
        self._cluster = run_cluster(place.address, planned.test, app_of)
        self._ui = ui
        self._console = console

    async def detached(self) -> SubmittedRun:
        async with self._cluster:
            return await self._insert(await self._prepare(aside))

    async def run(self) -> tuple[FollowedRun | None, bool]:
        """The run as it was followed, None if nothing was submitted; and whether it was interrupted."""
        interrupts = Interrupts(notes=_NOTES)
        async with contextlib.AsyncExitStack() as stack:
            display = stack.enter_context(FollowDisplay.shown(self._ui, self._console, interrupts))
            run = await _unless(interrupts.stop, self._prepared(stack, display.note))
            if run is None:
                return None, True
            handle = await self._insert(run)
            display.note(_submitted(handle))
            follower = display.follower(self._cluster.source(handle.id))
            followed = await follower.follow(stop=interrupts.stop, give_up=interrupts.give_up)
            return followed, interrupts.pressed

    async def _prepared(self, stack: contextlib.AsyncExitStack, note: Callable[[str], None]) -> PreparedRun:
        await stack.enter_async_context(self._cluster)
        return await self._prepare(note)

    async def _prepare(self, note: Callable[[str], None]) -> PreparedRun:
        return await self._cluster.prepare(self._planned, self._demand, self._options, by=local_actor(), on_note=note)

    async def _insert(self, run: PreparedRun) -> SubmittedRun:
        try:
            return await self._cluster.insert(run)
        except StoreUnavailable:
            aside(f"it may have been submitted; to submit it once, run this again with --job-key {run.key}")
            raise


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of the work; None if the event is set before, which cancels it."""
    doing, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        doing.cancel()
        stopping.cancel()
        await asyncio.gather(doing, stopping, return_exceptions=True)


async def _written(files: Sequence[Output], summary: Summary) -> Summary:
    """Write the files; those that could not be written are outputs with an error in the summary."""
    outputs = RunOutputs(files)
    await outputs.start(summary.header)
    await outputs.stop(summary)
    # of the leader's own outputs, only one that failed is worth mentioning
    failed = [each for each in (*summary.outputs, *outputs.outcomes()) if each.error]
    return msgspec.structs.replace(summary, outputs=failed)


def _submitted(handle: SubmittedRun) -> str:
    if not handle.created:
        return f"job {handle.id} was submitted before with this key; it is followed"
    return f"job {handle.id} is submitted; durability: {handle.durability}"


def _left(job: LedJob, place: ClusterPlace) -> str:
    return f"left while job {job.id} is {job.status}; {_report(job.id, place)}"


def _report(job_id: str, place: ClusterPlace) -> str:
    if place.is_http:
        return f"its report: {shown_url(place.address).rstrip('/')}/loads/{job_id}"
    return f"its report: mainstay load report {job_id}{place.option}"


def _without_numbers(followed: FollowedRun, planned: PlannedRun, *, pressed: bool) -> int:
    """The exit code of a run that sent nothing."""
    job = followed.job
    if pressed:
        if followed.is_settled:
            aside(f"job {job.id} is {job.status}; no load was sent")
        return INTERRUPTED
    if job.status == "cancelled":
        aside(f"job {job.id} was cancelled ({job.reason}) before any load")
        return NO
    raise followed.failure(planned.test.name)


__all__ = ["cluster_place", "demand_of", "run_on_nodes"]
