"""Who waits for whom.

An edge is there until the job it points to settles or goes. Most ends of a wait change nothing for the waiter but the
number of jobs it still waits for: the script that settles a row sees to those (`lua/changing.lua`). Where a waiter must
move on, that is decided here, in a transaction that fails if anybody else ended one of its waits meanwhile. So the last
of several jobs is never missed and never counted twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ...model import Job
from .. import judge
from .base import Base
from .transaction import Tx

#: (job, status it settled in)
Over = tuple[str, str]


async def settle(tx: Tx, rows: Iterable[Job]) -> None:
    """Move on whoever waited for these rows, as far as they are settled."""
    await follow(tx, [(row.id, row.status) for row in rows if judge.is_settled(row)])


async def follow(tx: Tx, over: Iterable[Over]) -> None:
    """Move on whoever waited for what settled or went, and whoever waited for those."""
    queue = deque(over)
    while queue:
        on, status = queue.popleft()
        waiters = await tx.watchers(on)
        if not waiters:
            continue
        tx.done(on, waiters)
        for job_id in waiters:
            more = await tx.waits_for_more(job_id)
            if judge.keeps_waiting(status, more=more):
                continue
            row = await tx.whole(job_id)
            moved = judge.dependant_move(row, on, status, more=more, now_ms=tx.now_ms, chain=tx.chain)
            if row is not None and moved is not None:
                tx.put(row, moved.job, moved.events)
                if judge.is_settled(moved.job):
                    queue.append((moved.job.id, moved.job.status))


async def awaited(base: Base, job_id: str) -> list[str]:
    found = await base.call("LRANGE", f"on:{job_id}", 0, -1)
    return [each.decode() for each in found]
