"""Ask a worker to drain, from anywhere: it learns of it with its next heartbeat."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ..errors import WorkerNotFound
from ..model import Session
from ..stores import JobStore
from .options import check_text


async def drain(store: JobStore, which: str, *, by: str) -> list[Session]:
    """Ask the worker `which`, a name or a session's id, to drain; returns its sessions as they are now."""
    check_text(which, field="worker", limit=200)
    check_text(by, field="actor", limit=200)
    crew = crew_of(which, await store.sessions())
    accepted = await store.drain([session.id for session in crew], by=by)
    if not any(accepted):
        raise WorkerNotFound(which)
    sessions = {session.id: session for session in await store.sessions()}
    # a session that has ended since is returned as draining
    return [
        sessions.get(each.id) or each.drained(store.clock.now_ms(), by)
        for each, ok in zip(crew, accepted, strict=True)
        if ok
    ]


def crew_of(which: str, sessions: Iterable[Session]) -> list[Session]:
    """All processes of the worker with this name or session id; they end together. Several workers may have one name.

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
    """The fields that identify the worker of a process."""

    @property
    def id(self) -> str: ...
    @property
    def worker(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def supervisor(self) -> int: ...


def worker_of(session: Belongs) -> tuple[str, str, int, str]:
    """A key that all processes of one worker share, and no others."""
    return session.worker, session.host, session.supervisor, "" if session.supervisor else session.id


__all__ = ["crew_of", "drain", "worker_of"]
