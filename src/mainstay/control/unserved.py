"""Jobs that no live worker takes: of queues that none listens on, and of tasks that none has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ..lifecycle import JOB
from ..model import Session, is_private
from ..stores import Stats
from ..words import counted
from .explain import is_alive

_CLAIMABLE = JOB.named("claimable")


class Unserved(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that wait for a worker which is not there."""

    queue: str
    task: str | None
    """None: no live worker listens on the queue; else none of those that do has this task"""
    jobs: int

    @property
    def told(self) -> str:
        waits = f"{counted(self.jobs, 'job')} {'waits' if self.jobs == 1 else 'wait'}"
        if self.task is None:
            return f"no live worker listens on queue {self.queue}: {waits}"
        return f"no live worker knows {self.task}: {waits} in queue {self.queue}"


def serving(sessions: Iterable[Session], lease_ms: int) -> list[Session]:
    """Those that take jobs: alive, and not asked to drain."""
    return [session for session in sessions if is_alive(session, lease_ms) and not session.is_draining]


def unserved(stats: Stats, sessions: Sequence[Session], lease_ms: int) -> list[Unserved]:
    """What waits in vain, by queue and task. Nothing while no worker lives, which is said elsewhere, or one does not
    say what it serves."""
    live = serving(sessions, lease_ms)
    if not live or any(session.offer is None for session in live):
        return []
    found = []
    for queue, seen in sorted(stats.queues.items()):
        waiting = sum(seen.counts.get(status, 0) for status in _CLAIMABLE)
        if waiting and not is_private(queue) and not any(session.serves(queue) for session in live):
            found.append(Unserved(queue=queue, task=None, jobs=waiting))
    for queue, tasks in sorted(stats.routed.items()):
        here = [session for session in live if session.serves(queue)]
        for task, n in sorted(tasks.items()):
            if here and not any(session.offer and task in session.offer.tasks for session in here):
                found.append(Unserved(queue=queue, task=task, jobs=n))
    return found
