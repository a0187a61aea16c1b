"""`mainstay jobs list` and `mainstay jobs show`: find jobs, and read what happened to one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from ..control import Control
from ..errors import InvalidInput, JobNotFound
from ..lifecycle import JOB, UNIT, Event
from ..model import Job, Session, check_id
from ..stores import JobStore, Query, Refusal
from . import jobs_view
from .common import JsonOption, StoreOption, looking, print_json, reflowed, screen

_PART = re.compile(r"[0-9a-f][0-9a-f-]*")
_SHORTEST = 8
_ID = 36
_MOST = 1000
_PAGE = 1000

_LIST = reflowed("""
List jobs, newest first, a page at a time.

Filters narrow together; --status takes several, with commas or given again. Below a full page stands the
cursor of the next.

Exit codes: 0 fine (also when nothing matches), 2 error.

[bold]Examples[/bold]

  mainstay jobs list --status failed,quarantined
  mainstay jobs list --queue mail --text "hung up"
  mainstay jobs list --json | jq -r .jobs[].id
""")

_SHOW = reflowed("""
Show everything about one job: where it stands, why, and its whole story.

The id may be shortened to its beginning or its end (8 characters or more) if only one job has it. Ids of jobs
submitted together begin alike; their ends differ.

Payload and result are shown only with --payload: they may hold what should not be on a screen.

Exit codes: 0 fine, 2 error (no such job, or several).

[bold]Examples[/bold]

  mainstay jobs show 01a1e20f-5355-7137-b2a7-4de452e6b59d
  mainstay jobs show 4de452e6b59d --payload
""")

group = typer.Typer(help="Find jobs, and read what happened to them.", no_args_is_help=True, rich_markup_mode="rich")


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """All there is to know about a job."""

    job: Job | None
    """None: deleted; its tombstone is left"""
    events: list[Event]
    refusals: list[Refusal]
    sessions: dict[str, Session]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="jobs")


@group.command(name="list", help=_LIST)
def list_jobs(
    store: StoreOption = "",
    status: Annotated[
        list[str] | None,
        typer.Option("--status", help="In this state, or in one of several (a,b).", show_default=False),
    ] = None,
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
    """List the jobs that match."""
    query = Query(
        status=tuple(word.strip() for words in status for word in words.split(",")) if status else None,
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
        jobs_view.show_list(found, more, now_ms, screen())


@group.command(name="show", help=_SHOW)
def show_job(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id, or its beginning or end.")],
    store: StoreOption = "",
    payload: Annotated[bool, typer.Option("--payload", help="Show payload, result and checkpoint, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show one job."""

    async def look(store: JobStore) -> tuple[Seen, int]:
        return await _seen(store, await full_id(store, job_id)), store.clock.now_ms()

    seen, now_ms = looking(store, look, as_json=as_json)
    if as_json:
        print_json(_seen_data(seen, payload=payload))
    else:
        jobs_view.show_job(seen.job, seen.events, seen.refusals, seen.sessions, now_ms, screen(), payload=payload)


async def full_id(store: JobStore, given: str) -> str:
    """The id that is meant. A beginning will do, or else an end, if only one job has it."""
    given = given.strip().lower()
    if len(given) >= _ID or not _PART.fullmatch(given):
        return given
    if len(given) < _SHORTEST:
        raise InvalidInput("job", f"{given!r} is too short; give at least {_SHORTEST} characters of the id")
    for how, matching in (("begin", _beginning_with), ("end", _ending_with)):
        found = await matching(store, given)
        if len(found) > 1:
            shown = ", ".join(found)
            raise InvalidInput("job", f"several jobs {how} with {given!r} ({shown} ...); give the whole id")
        if found:
            return found[0]
    raise JobNotFound(f"{given}...")


async def _beginning_with(store: JobStore, prefix: str) -> list[str]:
    """Up to two ids. They begin with their time, so a beginning is a stretch of time."""
    when = prefix.replace("-", "")[:12]
    query = Query(
        text=prefix,
        created_from_ms=int(when.ljust(12, "0"), 16),
        created_before_ms=int(when.ljust(12, "f"), 16) + 1,
    )
    return await _two(store, query, lambda job_id: job_id.startswith(prefix))


async def _ending_with(store: JobStore, suffix: str) -> list[str]:
    """Up to two ids. Ends are random, so this looks at every job."""
    return await _two(store, Query(text=suffix), lambda job_id: job_id.endswith(suffix))


async def _two(store: JobStore, query: Query, fits: Callable[[str], bool]) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = await store.find(query, cursor=cursor, limit=2)
        found += [job.id for job in page.jobs if fits(job.id)]
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
