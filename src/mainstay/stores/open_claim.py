"""The event of a claim that a server makes.

No server can seal an event, so it stands in the row (session, token, time) until the next write of the job adds it to
the trail. Whoever reads the row before derives it from there. It must come out the same to the byte: the digest of the
next event builds on it.
"""

from __future__ import annotations

from typing import Any

from ..lifecycle import Event
from ..model import Job

#: the only state there is a claim from (a test says so)
CLAIMED_FROM = "pending"


def claim_body(job_id: str, version: int, claimed_ms: int | None, session: str | None, token: int) -> tuple[Any, ...]:
    """What the digest of a claim's event is made of; of a damaged row, too, an event can be made."""
    return (job_id, version, claimed_ms or 0, CLAIMED_FROM, "running", session or "", None, token, "", None)


def claim_event(job: Job) -> Event:
    """The event that an open row stands for; `job` as it was read, with the event's digest for its head."""
    body = claim_body(job.id, job.version, job.claimed_ms, job.session, job.token)
    values: list[Any] = [*body, job.head]
    return Event(*values)
