"""`mainstay jobs list` and `mainstay jobs show`: find jobs, and read what happened to one."""

from __future__ import annotations

import difflib
import re
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from ..control import Control
from ..errors import InvalidInput, JobNotFound
from ..lifecycle import JOB, UNIT, Event
from ..model import Job, Session, check_id
from ..stores import JobStore, Query, Refusal
from . import jobs_view
from .common import JsonOption, StoreOption, looking, print_json

_PREFIX = re.compile(r"[0-9a-f][0-9a-f-]*")
_SHORTEST = 8
_ID = 36
_MOST = 1000
_PAGE = 1000

_LIST = """List jobs, newest first, a page at a time.

Filters narrow together; --status may be given several times. Below a full page stands the cursor of the next.

Exit codes: 0 fine (also when nothing matches), 2 error.

[bold]Examples[/bold]

  mainstay jobs list --status failed --status quarantined
  mainstay jobs list --queue mail --text "connection reset" --limit 20
  mainstay jobs list --json --limit 1000 | jq -r .jobs[].id
"""

_SHOW = """Show everything about one job: where it stands, why, and its whole story.

The id may be shortened to its beginning (8 characters or more) if only one job begins so. Payload and result are shown
only with --payload: they may hold what should not be on a screen.

Exit codes: 0 fine, 2 error (no such job, or several).

[bold]Examples[/bold]

  mainstay jobs show 01a1e20f-5355-7137-b2a7-4de452e6b59d
  mainstay jobs show 01a1e20f-5355 --payload
"""

group = typer.Typer(help="Find jobs, and read what happened to them.", no_args_is_help=True, rich_markup_mode="rich")


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """All there is to know about a job."""

    job: Job | None
    """None: deleted; its tombstone is left"""
    events: list[Event]
    refusals: list[Refusal]
    sessions: dict[str, Session]


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="jobs")


@group.command(name="list", help=_LIST)
def list_jobs(
    store: StoreOption = "",
    status: Annotated[list[str] | None, typer.Option("--status", help="In this state.", show_default=False)] = None,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="In this queue.", show_default=False)] = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="Of this name.", show_default=False)] = None,
    tag: Annotated[str | None, typer.Option("--tag", "-t", help="With this tag.", show_default=False)] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", help="With this in its id, name, reason or last error.", show_default=False),
    ] = None,
    parent: Annotated[str | None, typer.Option("--parent", help="Units of this job.", show_default=False)] = None,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="Oldest first.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, max=_MOST, help="Most jobs on a page.")] = 50,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Go on where a page ended.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    query = Query(
        status=tuple(status) if status else None,
        queue=queue,
        name=name,
        tag=tag,
        text=text,
        oldest_first=oldest_first,
    )

    async def look(store: JobStore) -> tuple[list[Job], str | None, int]:
        await _known(store, query.status)
        wanted = query
        if parent is not None:
            whole = await full_id(store, parent)
            wanted = msgspec.structs.replace(query, parent=check_id(whole, field="parent"))
        return *await _page(store, wanted, cursor, limit), store.clock.now_ms()

    found, more, now_ms = looking(store, look, as_json=as_json)
    if as_json:
        print_json({"jobs": [jobs_view.job_data(job) for job in found], "cursor": more})
    else:
        jobs_view.show_list(found, more, now_ms, Console(highlight=False))


@group.command(name="show", help=_SHOW)
def show_job(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id, or its beginning.")],
    store: StoreOption = "",
    payload: Annotated[bool, typer.Option("--payload", help="Show payload, result and checkpoint, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    async def look(store: JobStore) -> tuple[Seen, int]:
        return await _seen(store, await full_id(store, job_id)), store.clock.now_ms()

    seen, now_ms = looking(store, look, as_json=as_json)
    if as_json:
        print_json(_seen_data(seen, payload=payload))
    else:
        jobs_view.show_job(
            seen.job, seen.events, seen.refusals, seen.sessions, now_ms, Console(highlight=False), payload=payload
        )


async def full_id(store: JobStore, given: str) -> str:
    """The id that is meant. A beginning will do if it is the beginning of one job only."""
    given = given.strip().lower()
    if len(given) >= _ID or not _PREFIX.fullmatch(given):
        return given
    if len(given) < _SHORTEST:
        raise InvalidInput("job", f"{given!r} is too short; give at least {_SHORTEST} characters of the id")
    matching = await _beginning_with(store, given)
    if not matching:
        raise JobNotFound(f"{given}...")
    if len(matching) > 1:
        shown = ", ".join(matching)
        raise InvalidInput("job", f"several jobs begin with {given!r} ({shown} ...); give more of the id")
    return matching[0]


async def _beginning_with(store: JobStore, prefix: str) -> list[str]:
    """Up to two ids. They begin with their time, so a beginning is a stretch of time."""
    when = prefix.replace("-", "")[:12]
    query = Query(
        text=prefix,
        created_from_ms=int(when.ljust(12, "0"), 16),
        created_before_ms=int(when.ljust(12, "f"), 16) + 1,
    )
    found: list[str] = []
    cursor = None
    while True:
        page = await store.find(query, cursor=cursor, limit=2)
        found += [job.id for job in page.jobs if job.id.startswith(prefix)]
        cursor = page.cursor
        if cursor is None or len(found) > 1:
            return found[:2]


async def _known(store: JobStore, statuses: tuple[str, ...] | None) -> None:
    """Refuse a misspelt status: an empty list would pass for good news."""
    known = JOB.states.keys() | UNIT.states.keys()
    asked = set(statuses or ()) - known
    if not asked:
        return
    there = {status for queue in (await store.stats()).queues.values() for status in queue.counts}
    for status in sorted(asked - there):
        close = difflib.get_close_matches(status, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(JOB.states)}"
        raise InvalidInput("status", f"{status!r} is no state that is known here; {hint}")


async def _page(store: JobStore, query: Query, cursor: str | None, limit: int) -> tuple[list[Job], str | None]:
    """A full page, if there is one: the store may answer in short stretches when a filter finds little."""
    found: list[Job] = []
    while True:
        page = await store.find(query, cursor=cursor, limit=limit - len(found))
        found += page.jobs
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            return found, cursor


async def _seen(store: JobStore, job_id: str) -> Seen:
    control = Control(store)
    events: list[Event] = []
    while page := await control.events(job_id, after=events[-1].seq if events else 0, limit=_PAGE):
        events += page
        if len(page) < _PAGE:
            break
    (job,) = await store.get([job_id])
    return Seen(
        job=job,
        events=events,
        refusals=await store.refusals(job_id),
        sessions={session.id: session for session in await store.sessions()},
    )


def _seen_data(seen: Seen, *, payload: bool) -> dict[str, Any]:
    return {
        "job": None if seen.job is None else jobs_view.job_data(seen.job, payload=payload),
        "events": [jobs_view.event_data(event) for event in seen.events],
        "refusals": msgspec.to_builtins(seen.refusals),
    }
