"""`mainstay jobs`: find jobs, read what happened to one, and move them."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import msgspec
import typer

from ..control import Control
from ..control.json_view import event_view, job_view, value_of
from ..kinds import kinds
from ..lifecycle import Event
from ..model import Job, Session, check_id
from ..stores import JobStore, Query, RefusedWrite
from . import act, jobs_view, story, watch
from .command import command
from .common import JsonOption, looking, print_json, screen
from .filters import Filters
from .ids import IdArgument, full_id
from .target import Where

_MOST = 1000
_PAGE = 1000


group = typer.Typer(help="Find, inspect and change jobs.", no_args_is_help=True, rich_markup_mode="rich")


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """All there is to know about a job."""

    job: Job | None
    """None: deleted; its tombstone is left"""
    events: list[Event]
    refusals: list[RefusedWrite]
    sessions: dict[str, Session]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for module in (watch, story, act):
        module.register(group)
    for kind in kinds():
        for name in kind.job_commands:
            import_module(name).register(group)
    app.add_typer(group, name="jobs")


@command(group, "list")
def list_jobs(
    where: Where,
    filters: Filters,
    parent: Annotated[str | None, typer.Option("--parent", help="Units of this batch, given by its id.")] = None,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="List the oldest jobs first.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, max=_MOST, help="Jobs on a page, at most.")] = 50,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Cursor of the page to show, printed below the page before it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first, one page at a time.

    A job must match all filters. --status takes several states, separated by commas or repeated. Below a full page is
    the cursor of the next page.

    Exit codes: 0 fine (also when nothing matches), 2 error.

    [bold]Examples[/bold]

      mainstay jobs list --status failed,quarantined
      mainstay jobs list --queue mail --text "hung up" --newer-than 2h
      mainstay jobs list --json | jq -r .jobs[].id
    """

    async def look(store: JobStore) -> tuple[list[Job], str | None, int]:
        query = msgspec.structs.replace(await filters.query(store), oldest_first=oldest_first)
        if parent is not None:
            whole = await full_id(store, parent, field="parent")
            query = msgspec.structs.replace(query, parent=check_id(whole, field="parent"))
        return *await _page(store, query, cursor, limit), store.clock.now_ms()

    found, more, now_ms = looking(where, look)
    if as_json:
        print_json({"jobs": [job_view(job) for job in found], "cursor": more})
    else:
        jobs_view.show_list(found, more, now_ms, screen())


@command(group, "show")
def show_job(
    where: Where,
    job_id: IdArgument,
    payload: Annotated[bool, typer.Option("--payload", help="Also show payload, result and checkpoint.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show everything about one job: its state, the reason for it, and its whole history.

    The id may be shortened to its first or last characters, 8 or more, if they are unique. Jobs submitted together have
    ids that begin alike; their ends differ.

    Payload and result are shown only with --payload, since they may hold private data.

    Exit codes: 0 fine, 2 error (no such job, or several).

    [bold]Examples[/bold]

      mainstay jobs show 01a1e20f-5355-7137-b2a7-4de452e6b59d
      mainstay jobs show 4de452e6b59d --payload
    """

    async def look(store: JobStore) -> tuple[Seen, int]:
        return await _seen(store, await full_id(store, job_id)), store.clock.now_ms()

    seen, now_ms = looking(where, look)
    if as_json:
        print_json(_seen_data(seen, payload=payload))
    else:
        jobs_view.show_job(seen.job, seen.events, seen.refusals, seen.sessions, now_ms, screen(), payload=payload)


async def _page(store: JobStore, query: Query, cursor: str | None, limit: int) -> tuple[list[Job], str | None]:
    """A full page, if there is one: the store may answer in short stretches when a filter finds little."""
    found: list[Job] = []
    while True:
        page = await store.find(query, cursor=cursor, limit=limit - len(found))
        found += page.jobs
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            return found, cursor


async def all_events(store: JobStore, job_id: str, *, after: int = 0) -> list[Event]:
    """The whole story, however long."""
    control = Control(store)
    events: list[Event] = []
    while page := await control.jobs.events(job_id, after=events[-1].seq if events else after, limit=_PAGE):
        events += page
        if len(page) < _PAGE:
            break
    return events


async def _seen(store: JobStore, job_id: str) -> Seen:
    events = await all_events(store, job_id)
    (job,) = await store.get([job_id])
    return Seen(
        job=job,
        events=events,
        refusals=await store.refusals(job_id),
        sessions={session.id: session for session in await store.sessions()},
    )


def _seen_data(seen: Seen, *, payload: bool) -> dict[str, Any]:
    return {
        "job": None if seen.job is None else job_view(seen.job, value_of if payload else None),
        "events": [event_view(event) for event in seen.events],
        "refusals": msgspec.to_builtins(seen.refusals),
    }
