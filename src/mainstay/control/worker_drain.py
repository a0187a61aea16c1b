"""Asking a worker to end in good order, from anywhere: it hears of it with its next heartbeat."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ..errors import WorkerNotFound
from ..model import Session
from ..stores import JobStore
from .options import check_text


async def drain(store: JobStore, which: str, *, by: str) -> list[Session]:
    """Ask whom `which` means; the sessions that were asked, as they are now."""
    check_text(which, field="worker", limit=200)
    check_text(by, field="actor", limit=200)
    meant = crew_of(which, await store.sessions())
    asked = await store.drain([session.id for session in meant], by=by)
    if not any(asked):
        raise WorkerNotFound(which)
    there = {session.id: session for session in await store.sessions()}
    # one that has ended since is given as it was in between
    return [
        there.get(each.id) or each.drained(store.clock.now_ms(), by)
        for each, ok in zip(meant, asked, strict=True)
        if ok
    ]


def crew_of(which: str, sessions: Iterable[Session]) -> list[Session]:
    """Whom a session's id or a worker's name means: all processes of that worker, for they end together. A name may be
    that of several workers.

    >>> two = [Session(id=each, worker="w", host="h", supervisor=7) for each in ("w.a", "w.b")]
    >>> other = Session(id="w.c", worker="w", host="h", supervisor=8)
    >>> [each.id for each in crew_of("w.a", [*two, other])], [each.id for each in crew_of("w", [*two, other])]
    (['w.a', 'w.b'], ['w.a', 'w.b', 'w.c'])
    """
    living = [session for session in sessions if not session.dead]
    one = next((session for session in living if session.id == which), None)
    if one is None:
        return [session for session in living if session.worker and session.worker == which]
    return [one] if not one.supervisor else [session for session in living if worker_of(session) == worker_of(one)]


class Belongs(Protocol):
    """What tells whose a process is."""

    @property
    def id(self) -> str: ...
    @property
    def worker(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def supervisor(self) -> int: ...


def worker_of(session: Belongs) -> tuple[str, str, int, str]:
    """The same for all processes of one worker, and for those of no other."""
    return session.worker, session.host, session.supervisor, "" if session.supervisor else session.id


__all__ = ["crew_of", "drain", "worker_of"]
