"""From what people type to a job's id."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

import typer

from ..errors import InvalidInput, JobNotFound
from ..kinds import kinds
from ..stores import JobStore, Query
from . import completion

_PART = re.compile(r"[0-9a-f][0-9a-f-]*")
_SHORTEST = 8
_ID = 36
#: jobs of each kind with units that are asked for a unit
_PARENTS = 200
_SHORTENED = f"an id may be shortened to its beginning or its end, of {_SHORTEST} characters or more"

IdArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="Id of the job, or its first or last 8 or more characters.", autocompletion=completion.jobs
    ),
]
IdsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ID]...",
        help="Ids of the jobs, or their first or last 8 or more characters.",
        autocompletion=completion.jobs,
    ),
]


async def full_id(store: JobStore, given: str, *, field: str = "job") -> str:
    """The id that is meant. A beginning will do, or else an end, if only one job has it."""
    given = given.strip().lower()
    if len(given) >= _ID:
        return given
    if not _PART.fullmatch(given):
        raise InvalidInput(field, f"{given!r} is not a job id; {_SHORTENED}")
    if len(given) < _SHORTEST:
        raise InvalidInput(field, f"{given!r} is too short; {_SHORTENED}")
    ways = (("begin", _beginning_with), ("end", _ending_with), ("begin or end", _of_units))
    for how, matching in ways:
        found = await matching(store, given)
        if len(found) > 1:
            shown = ", ".join(found)
            raise InvalidInput(field, f"several jobs {how} with {given!r} ({shown} ...); give the whole id")
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


async def _of_units(store: JobStore, part: str) -> list[str]:
    """Up to two ids of units. Lists leave units out, so each of the newest jobs that may have some is asked."""
    found: list[str] = []
    for kind in (each.name for each in kinds() if each.has_units):
        for parent in (await store.find(Query(kind=kind), limit=_PARENTS)).jobs:
            query = Query(parent=parent.id, text=part)
            found += await _two(store, query, lambda job_id: job_id.startswith(part) or job_id.endswith(part))
            if len(found) > 1:
                return found[:2]
    return found


async def _two(store: JobStore, query: Query, fits: Callable[[str], bool]) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = await store.find(query, cursor=cursor, limit=2)
        found += [job.id for job in page.jobs if fits(job.id)]
        cursor = page.cursor
        if cursor is None or len(found) > 1:
            return found[:2]
