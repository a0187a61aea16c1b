"""Explain: a job's story in sentences. Where it is and why, what it waits for, what became of each attempt, what comes
next, and what to do now.

Layer: control. Start from `explained` (reads a store) or `explain` (a pure function of row, events and facts). The
sentences are data: the command line prints them, and so can anything else.
"""

from __future__ import annotations

from ...lifecycle import Event
from ...model import Job, check_id
from ...stores import JobStore
from ..trail import read_events
from .attempts import Attempt, read_attempts
from .cluster_facts import ClusterFacts, NodeEvent, NodeFact
from .facts import Advice, Awaited, Facts, Obstacle, as_heard, gather, is_alive
from .story import Explanation, Section, explain

#: how many of the newest events are read
_READ = 1000


async def explained(store: JobStore, job_id: str, cluster: ClusterFacts | None = None) -> Explanation:
    """Explain one job; raises `JobNotFound`. `cluster`: what managers know of nodes.

    >>> import asyncio
    >>> from mainstay.control import Control
    >>> from mainstay.testing import MemoryStore, VirtualClock
    >>> async def main():
    ...     store = MemoryStore(VirtualClock())
    ...     job = await Control(store).jobs.submit("mail.send", queue="mail")
    ...     return (await explained(store, job.id)).sections[1].sentences[0]
    >>> asyncio.run(main())
    'No worker is alive on this store: no session is open.'
    """
    return explain(job_id, *await matter(store, job_id, cluster))


async def matter(
    store: JobStore, job_id: str, cluster: ClusterFacts | None = None
) -> tuple[Job | None, list[Event], Facts]:
    """The input of `explain`, for a caller that masks part of it first; raises `JobNotFound`."""
    (job,) = await store.get([check_id(job_id)])
    after = 0 if job is None else max(0, job.version - _READ)
    events = await read_events(store, job_id, after=after, limit=_READ + 1)
    return job, events, await gather(store, job_id, job, cluster)


__all__ = [
    "Advice",
    "Attempt",
    "Awaited",
    "ClusterFacts",
    "Explanation",
    "Facts",
    "NodeEvent",
    "NodeFact",
    "Obstacle",
    "Section",
    "as_heard",
    "explain",
    "explained",
    "gather",
    "is_alive",
    "matter",
    "read_attempts",
]
