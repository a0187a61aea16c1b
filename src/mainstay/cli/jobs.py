"""`mainstay jobs`: find jobs, show one with its history, and change jobs."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import msgspec
import typer

from ..control import Control, event_view, job_view, value_of
from ..kinds import kinds
from ..lifecycle import Event
from ..model import Job, check_id
from ..stores import JobStore, Query
from . import jobs_view
from .commands import CommandOutput, command, command_group
from .filters import Filters
from .ids import IdArgument, full_id
from .job_actions import cancel, delete, force, retry
from .story import events, explain
from .watch import watch

_MOST = 1000
_PAGE = 1000

group = command_group("Find, inspect and change jobs.")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for function in (watch, events, explain, cancel, retry, force, delete):
        command(group, function.__name__)(function)
    for kind in kinds():
        for name in kind.job_commands:
            import_module(name).register(group)
    # by name: the cluster is a layer above
    import_module("mainstay.cluster.cli.job_output").register(group)
    app.add_typer(group, name="jobs")


@command(group, "list")
async def list_jobs(
    store: JobStore,
    filters: Filters,
    parent: Annotated[str | None, typer.Option("--parent", help="Units of this batch, given by its id.")] = None,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="List the oldest jobs first.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, max=_MOST, help="Jobs on a page, at most.")] = 50,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Cursor of the page to show, printed below the page before it.")
    ] = None,
) -> CommandOutput:
    """List jobs, newest first, one page at a time.

    A job must match all filters. --status takes several states, separated by commas or repeated. Below a full page is
    the cursor of the next page.

    Exit codes: 0 fine (also when nothing matches), 2 error.

    [bold]Examples[/bold]

      mainstay jobs list --status failed,quarantined
      mainstay jobs list --queue mail --text "hung up" --newer-than 2h
      mainstay jobs list --json | jq -r .jobs[].id
    """
    query = msgspec.structs.replace(await filters.query(store), oldest_first=oldest_first)
    if parent is not None:
        parent = check_id(await full_id(store, parent, field="parent"), field="parent")
        query = msgspec.structs.replace(query, parent=parent)
    jobs, next_cursor = await _page(store, query, cursor, limit)
    now_ms = store.clock.now_ms()
    data = {"jobs": [job_view(job) for job in jobs], "cursor": next_cursor}
    return CommandOutput(data, lambda console: jobs_view.show_list(jobs, next_cursor, now_ms, console))


@command(group, "show")
async def show_job(
    store: JobStore,
    job_id: IdArgument,
    payload: Annotated[bool, typer.Option("--payload", help="Also show payload, result and checkpoint.")] = False,
) -> CommandOutput:
    """Show everything about one job: its state, the reason for it, and its whole history.

    The id may be shortened to its first or last characters, 8 or more, if they are unique. Jobs submitted together have
    ids that begin alike; their ends differ.

    Payload and result are shown only with --payload, since they may hold private data.

    Exit codes: 0 fine, 2 error (no such job, or several).

    [bold]Examples[/bold]

      mainstay jobs show 01a1e20f-5355-7137-b2a7-4de452e6b59d
      mainstay jobs show 4de452e6b59d --payload
    """
    job_id = await full_id(store, job_id)
    events = await _all_events(store, job_id)
    (job,) = await store.get([job_id])
    refusals = await store.refusals(job_id)
    sessions = await store.sessions()
    now_ms = store.clock.now_ms()
    data = {
        "job": None if job is None else job_view(job, value_of if payload else None),
        "events": [event_view(event) for event in events],
        "refusals": refusals,
    }
    return CommandOutput(
        data, lambda console: jobs_view.show_job(job, events, refusals, sessions, now_ms, console, payload=payload)
    )


async def _page(store: JobStore, query: Query, cursor: str | None, limit: int) -> tuple[list[Job], str | None]:
    """A full page, if there are enough jobs: a store may return fewer at a time when few match a filter."""
    jobs: list[Job] = []
    while True:
        page = await store.find(query, cursor=cursor, limit=limit - len(jobs))
        jobs += page.jobs
        cursor = page.cursor
        if cursor is None or len(jobs) >= limit:
            return jobs, cursor


async def _all_events(store: JobStore, job_id: str) -> list[Event]:
    control = Control(store)
    events: list[Event] = []
    while page := await control.jobs.events(job_id, after=events[-1].seq if events else 0, limit=_PAGE):
        events += page
        if len(page) < _PAGE:
            break
    return events
