"""The event of a claim that a server makes.

A server cannot seal an event, so the claim is only in the row (session, token, time) until the next write of the job
adds its event to the trail. A reader derives the event from the row. It must be the same to the byte, because the
digest of the next event depends on it.
"""

from __future__ import annotations

from typing import Any

from ..lifecycle import Event
from ..model import Job

#: the only state that can be claimed (a test checks this)
CLAIMED_FROM = "pending"


def claim_body(job_id: str, version: int, claimed_ms: int | None, session: str | None, token: int) -> tuple[Any, ...]:
    """The fields that the digest of a claim's event covers. Works for a damaged row, too."""
    return (job_id, version, claimed_ms or 0, CLAIMED_FROM, "running", session or "", None, token, "", None)


def claim_event(job: Job) -> Event:
    """The event of an open row; `job` as it was read, with the event's digest as its head."""
    body = claim_body(job.id, job.version, job.claimed_ms, job.session, job.token)
    values: list[Any] = [*body, job.head]
    return Event(*values)
