"""The audit trail of one job, as a store keeps it: its events, and the same in words."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import JobNotFound
from ..lifecycle import Event, story, time_text
from ..model import check_id
from ..stores import JobStore
from .options import MOST

#: a story has this many of the newest events; older ones are read with `read_events`
_NEWEST = 1000


async def read_events(store: JobStore, job_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
    """The events in order; raises `JobNotFound`. A deleted job still has its tombstone."""
    # no job has this many, and not every engine takes a larger number
    events = await store.events(check_id(job_id), after=min(after, MOST), limit=limit)
    if not events and (await store.get([job_id]))[0] is None:
        raise JobNotFound(job_id)
    return events


async def read_story(store: JobStore, job_id: str, *, shown: Callable[[Event], Event] | None = None) -> list[str]:
    """The audit trail in words, with refused writes at the end. `shown` changes each event before it is put into words:
    a mask for private fields."""
    (job,) = await store.get([check_id(job_id)])
    skipped = 0 if job is None else max(0, job.version - _NEWEST)
    events = await read_events(store, job_id, after=skipped, limit=_NEWEST + 1)
    lines = story(events if shown is None else map(shown, events))
    if skipped:
        lines.insert(0, f"... {skipped} earlier events")
    for refusal in await store.refusals(job_id):
        lines.append(
            f"-  {time_text(refusal.at_ms)} refused {refusal.wanted} from {refusal.session}: "
            f"its claim (token {refusal.token}) had been lost"
        )
    return lines
