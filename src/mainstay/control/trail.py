"""The audit trail of one job: its events, and its story in text lines."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import JobNotFound
from ..lifecycle import Event, story, time_text
from ..model import check_id
from ..stores import JobStore
from .options import LARGEST_NUMBER

#: a story shows this many of the newest events; `read_events` reads older ones
_NEWEST = 1000


async def read_events(store: JobStore, job_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
    """The events in order; raises `JobNotFound`. A deleted job still has its tombstone."""
    # no job has more events, and some engines refuse larger numbers
    events = await store.events(check_id(job_id), after=min(after, LARGEST_NUMBER), limit=limit)
    if not events and (await store.get([job_id]))[0] is None:
        raise JobNotFound(job_id)
    return events


async def read_story(store: JobStore, job_id: str, *, shown: Callable[[Event], Event] | None = None) -> list[str]:
    """The audit trail as text lines, with refused writes at the end. `shown` changes each event first: a mask for
    private fields."""
    (job,) = await store.get([check_id(job_id)])
    skipped = 0 if job is None else max(0, job.version - _NEWEST)
    events = await read_events(store, job_id, after=skipped, limit=_NEWEST + 1)
    lines = story(events if shown is None else map(shown, events))
    if skipped:
        lines.insert(0, f"... {skipped} earlier events")
    for refusal in await store.refusals(job_id):
        lines.append(
            f"-  {time_text(refusal.at_ms)} refused {refusal.wanted} from {refusal.session}: "
            f"it had lost its claim (token {refusal.token})"
        )
    return lines
