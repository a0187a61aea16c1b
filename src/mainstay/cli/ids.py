"""Ids of jobs, which may be shortened on the command line."""

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
#: how many of the newest jobs with units are searched for a unit
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
    """The whole id of the job whose id begins or ends with the given text."""
    given = given.strip().lower()
    if len(given) >= _ID:
        return given
    if not _PART.fullmatch(given):
        raise InvalidInput(field, f"{given!r} is not a job id; {_SHORTENED}")
    if len(given) < _SHORTEST:
        raise InvalidInput(field, f"{given!r} is too short; {_SHORTENED}")
    searches = (("begin", _beginning_with), ("end", _ending_with), ("begin or end", _of_units))
    for verb, search in searches:
        matches = await search(store, given)
        if len(matches) > 1:
            shown = ", ".join(matches)
            raise InvalidInput(field, f"several jobs {verb} with {given!r} ({shown} ...); give the whole id")
        if matches:
            return matches[0]
    raise JobNotFound(f"{given}...")


async def _beginning_with(store: JobStore, prefix: str) -> list[str]:
    """Up to two ids. An id begins with its time, so a prefix is a range of time."""
    time_digits = prefix.replace("-", "")[:12]
    query = Query(
        text=prefix,
        created_from_ms=int(time_digits.ljust(12, "0"), 16),
        created_before_ms=int(time_digits.ljust(12, "f"), 16) + 1,
    )
    return await _first_two(store, query, lambda job_id: job_id.startswith(prefix))


async def _ending_with(store: JobStore, suffix: str) -> list[str]:
    """Up to two ids. The end of an id is random, so this reads every job."""
    return await _first_two(store, Query(text=suffix), lambda job_id: job_id.endswith(suffix))


async def _of_units(store: JobStore, part: str) -> list[str]:
    """Up to two ids of units. Lists leave units out, so this searches below the newest jobs that may have some."""
    matches: list[str] = []
    for kind in (each.name for each in kinds() if each.has_units):
        for parent in (await store.find(Query(kind=kind), limit=_PARENTS)).jobs:
            query = Query(parent=parent.id, text=part)
            matches += await _first_two(store, query, lambda job_id: job_id.startswith(part) or job_id.endswith(part))
            if len(matches) > 1:
                return matches[:2]
    return matches


async def _first_two(store: JobStore, query: Query, fits: Callable[[str], bool]) -> list[str]:
    matches: list[str] = []
    cursor = None
    while True:
        page = await store.find(query, cursor=cursor, limit=2)
        matches += [job.id for job in page.jobs if fits(job.id)]
        cursor = page.cursor
        if cursor is None or len(matches) > 1:
            return matches[:2]
