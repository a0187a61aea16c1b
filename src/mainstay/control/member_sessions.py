"""The sessions of nodes as managers know them: their beats are in the memory of managers, not in the store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from ..model import Session
from ..stores import JobStore, StoreProxy


class MemberSessions(StoreProxy):
    """A store whose sessions of nodes carry the beats that managers have heard.

    A node that is away looks like a direct worker whose lease is over: it gets no new work, and keeps what it has."""

    def __init__(
        self,
        store: JobStore,
        heard: Callable[[], Mapping[str, float]],
        *,
        away_s: float,
        degraded: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`heard`: by session, how many seconds ago its node was heard. `degraded`: the sessions of nodes that are
        stressed or overloaded."""
        super().__init__(store)
        self._heard = heard
        self._degraded = degraded
        self._away_s = away_s

    async def sessions(self) -> list[Session]:
        lease_ms = self._store.clock.lease_ms()
        heard, degraded = self._heard(), frozenset(self._degraded())
        sessions = await self._store.sessions()
        return [self._with_beat(session, heard, lease_ms, degraded=session.id in degraded) for session in sessions]

    def _with_beat(self, session: Session, heard: Mapping[str, float], lease_ms: int, *, degraded: bool) -> Session:
        if not session.standing or session.dead:
            return session
        silent_s = heard.get(session.id)
        beat_ms = 0 if silent_s is None else lease_ms - round(silent_s * 1000)
        return msgspec.structs.replace(
            session, standing=False, beat_ms=beat_ms, lease_s=self._away_s, degraded=degraded
        )


__all__ = ["MemberSessions"]
