"""Filters of jobs as users write them, checked and turned into a query."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import msgspec

from ..clock import seconds
from ..errors import InvalidInput
from ..lifecycle import JOB, UNIT
from ..stores import JobStore, Query


async def check_states(store: JobStore, statuses: Sequence[str]) -> None:
    """Refuse a misspelt status, because an empty list would look like good news. A store may have jobs in a state that
    only a newer version knows."""
    unknown = set(statuses) - (JOB.states.keys() | UNIT.states.keys())
    if not unknown:
        return
    stored = {status for queue in (await store.stats()).queues.values() for status in queue.counts}
    for status in sorted(unknown - stored):
        raise InvalidInput("status", f"{status!r} is not a known state; {state_meant(status)}")


def state_meant(status: str) -> str:
    """A hint for a misspelt state."""
    close = difflib.get_close_matches(status, JOB.states.keys() | UNIT.states.keys(), n=1)
    return f"did you mean {close[0]!r}?" if close else f"known states: {', '.join(JOB.states)}"


def by_age(
    query: Query,
    *,
    older_than: str | None,
    newer_than: str | None,
    now_ms: int,
    fields: tuple[str, str] = ("older_than", "newer_than"),
) -> Query:
    """Restrict a query to jobs older than one duration and newer than another; refuses an empty range."""
    before = None if older_than is None else now_ms - round(seconds(older_than, field=fields[0]) * 1000)
    after = None if newer_than is None else now_ms - round(seconds(newer_than, field=fields[1]) * 1000)
    if before is not None and after is not None and before <= after:
        raise InvalidInput(fields[0], f"no job can be older than {older_than} and newer than {newer_than}")
    return msgspec.structs.replace(
        query,
        created_before_ms=_least(query.created_before_ms, before),
        created_from_ms=_most(query.created_from_ms, after),
    )


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _most(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)
