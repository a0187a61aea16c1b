"""Jobs by their ids, and their events."""

from __future__ import annotations

from collections.abc import Sequence

from ....lifecycle import Chain, Event
from ....model import Job
from ...open_claim import claim_event
from ..connection.engine import PostgresEngine
from ..connection.pool import Db
from ..rows.codec import SELECT_EVENT, SELECT_JOB, event_from, is_id, readable_job, stored_ids

_EVENTS = f"{SELECT_EVENT} WHERE job_id = $1::text::uuid AND seq > $2 ORDER BY seq LIMIT $3"
_OPEN = f"{SELECT_JOB} WHERE id = $1::text::uuid AND open AND version > $2"


async def jobs_by_id(engine: PostgresEngine, ids: Sequence[str], chain: Chain) -> list[Job | None]:
    """In the given order, with harmless values for what cannot be read."""
    rows = await engine.call(f"{SELECT_JOB} WHERE id = ANY ($1::text[]::uuid[])", stored_ids(ids))
    found = {row[0]: readable_job(row, chain)[0] for row in rows}
    return [found.get(job_id) for job_id in ids]


async def events_of(engine: PostgresEngine, job_id: str, *, after: int, limit: int, chain: Chain) -> list[Event]:
    if not is_id(job_id):
        return []

    async def look(db: Db) -> list[Event]:
        events = [event_from(row) for row in await db.fetch(_EVENTS, job_id, after, limit)]
        if len(events) < limit and (row := await db.fetchrow(_OPEN, job_id, after)) is not None:
            events.append(claim_event(readable_job(row, chain)[0]))
        return events

    return await engine.read(look)
