"""Jobs that no live worker takes, because none listens on the queue or none has the task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ..lifecycle import JOB
from ..model import Session, is_private, is_reserved
from ..stores import Stats
from ..words import counted
from .explain import is_alive

_CLAIMABLE = JOB.named("claimable")


class Unserved(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs without a worker that takes them."""

    queue: str
    task: str | None
    """None: no live worker listens on the queue; else no worker that listens has this task"""
    jobs: int

    @property
    def text(self) -> str:
        waits = counted(self.jobs, "job waits", "jobs wait")
        if is_reserved(self.queue):
            return f"no node is active: {waits} to be placed"
        if self.task is None:
            return f"no live worker listens on queue {self.queue}: {waits}"
        return f"no live worker knows {self.task}: {waits} in queue {self.queue}"


def serving(sessions: Iterable[Session], lease_ms: int) -> list[Session]:
    """The sessions that take jobs: alive and not draining."""
    return [session for session in sessions if is_alive(session, lease_ms) and not session.is_draining]


def unserved(stats: Stats, sessions: Sequence[Session], lease_ms: int) -> list[Unserved]:
    """The jobs that no live worker takes, by queue and task. Empty without a live worker, which is reported elsewhere,
    and if one does not announce what it serves."""
    live = serving(sessions, lease_ms)
    if not live or any(session.offer is None for session in live):
        return []
    listed = []
    for queue, counts in sorted(stats.queues.items()):
        waiting = sum(counts.counts.get(status, 0) for status in _CLAIMABLE)
        if waiting and not is_private(queue) and not any(_takes(session, queue) for session in live):
            listed.append(Unserved(queue=queue, task=None, jobs=waiting))
    for queue, tasks in sorted(stats.routed.items()):
        listening = [session for session in live if session.serves(queue)]
        for task, n in sorted(tasks.items()):
            if listening and not any(session.offer and task in session.offer.tasks for session in listening):
                listed.append(Unserved(queue=queue, task=task, jobs=n))
    return listed


def _takes(session: Session, queue: str) -> bool:
    """Whether a session takes jobs of a queue; those of the reserved queue are placed on nodes."""
    return bool(session.node) if is_reserved(queue) else session.serves(queue) is True
