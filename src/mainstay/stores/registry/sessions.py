"""Sessions: a document each, rewritten with every heartbeat, and never in the log.

The machines share no clock. The last heartbeat of a session on this machine is compared with the monotonic clock that
both use. A session of another machine is watched: it is silent when its document has not changed for a whole lease, by
the watcher's own monotonic clock. A process that has just started watches for a lease before it decides.

Declaring a session dead is a conditional write to its document: its next heartbeat is refused. A standing session has
no lease: its document has one that never ends, so that no program of any version finds it silent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

import msgspec

from ...clock import Clock, SystemClock
from ...errors import StoreUnavailable
from ...model import Session
from ..boot import boot_id
from ..records import DRAINING
from .files import SCHEMA, check_schema, damaged, encoded
from .log import Log

PREFIX = "sessions/"
#: how often sessions without jobs are listed, so that none stays forever
_LIST_MS = 60_000
_BEAT_TRIES = 2
_MOMENT_MS = 1_000
_TRIES = 5
_AT_ONCE = 16
#: the lease in the document of a standing session, which has its own beside it
_NO_LEASE_S = 1e10


def name_of(clock: Clock) -> str:
    """A name of this machine's monotonic clock; "" if it cannot be determined. A clock of a test is the same for
    all."""
    if not isinstance(clock, SystemClock):
        return "given"
    boot = boot_id()
    return "" if boot == "unknown" else boot


class _Seen(msgspec.Struct):
    """A document as this process last read or wrote it."""

    version: str
    raw: dict[str, Any]
    read_ms: int


class RegistrySessions:
    """The documents, and `view`: the sessions in the replica's store."""

    def __init__(self, log: Log, clock: Clock, machine: str, view: Callable[[], dict[str, Session]]) -> None:
        self._log = log
        self._store = log.store
        self._clock = clock
        self._clock_name = machine
        self._view = view
        self._seen: dict[str, _Seen] = {}
        self._listed_ms: int | None = None

    # by its own worker ------------------------------------------------------------------------------

    async def open(self, session: Session) -> None:
        """Write its document; replaces one of the same name. What others have asked an open session stays in it."""
        await self._log.confirm_to_write()
        raw: dict[str, Any] = msgspec.to_builtins(session)
        if session.standing:
            raw |= {"lease_s": _NO_LEASE_S, "own_lease_s": session.lease_s}
        raw |= {"schema": SCHEMA, "dead": False, "beats": 0, **self._times(), **self._log.mark()}
        for _ in range(_TRIES):
            version = await self._store.create_if_absent(PREFIX + session.id, encoded(raw))
            if version is None and (stored := await self._store.get(PREFIX + session.id)):
                raw |= self._asked(stored.value)
                version = await self._store.put(PREFIX + session.id, encoded(raw), stored.version)
            if version is not None:
                self._know(session.id, version, raw)
                return
        raise StoreUnavailable(
            f"session {session.id} in {self._store.place} is opened and closed by others all the time; use a separate "
            "id for each process"
        )

    def _asked(self, document: bytes) -> dict[str, Any]:
        """The request to drain in the document of an open session, which its process may not have read yet."""
        with contextlib.suppress(msgspec.MsgspecError):  # a damaged one is replaced
            raw = msgspec.json.decode(document, type=dict[str, Any])
            if raw.get("dead") is False and raw.get("registry") in (None, self._log.identity):
                return {name: raw[name] for name in DRAINING if raw.get(name)}
        return {}

    async def beat(self, session: str) -> bool:
        """Keep it alive; False if it was declared dead or closed. It stays alive if others keep changing its
        document."""
        seen = self._seen.get(session) or await self._read(session)
        for _ in range(_BEAT_TRIES):
            if seen is None or seen.raw["dead"]:
                return False
            raw = {**seen.raw, "beats": seen.raw.get("beats", 0) + 1, **self._times()}
            if version := await self._store.put(PREFIX + session, encoded(raw), seen.version):
                self._know(session, version, raw)
                return True
            seen = await self._read(session)
        return seen is not None and not seen.raw["dead"]

    async def close(self, session: str) -> None:
        seen = self._seen.get(session) or await self._read(session)
        for _ in range(_TRIES):
            if seen is None or await self._store.delete(PREFIX + session, seen.version):
                break
            seen = await self._read(session)
        self._seen.pop(session, None)

    # by every process -------------------------------------------------------------------------------

    async def drain(self, session: str, *, by: str) -> bool:
        """Ask it to drain; False if it is dead or missing. Its next heartbeat conflicts, and reads the document."""
        for _ in range(_TRIES):
            seen = await self._read(session)
            if seen is None or seen.raw["dead"]:
                return False
            known = msgspec.structs.asdict(msgspec.convert(seen.raw, Session))
            drained = msgspec.structs.asdict(Session(**known).drained(self._clock.now_ms(), by))
            changed = {name: value for name, value in drained.items() if value != known[name]}
            if not changed:
                return True
            raw = {**seen.raw, **changed}
            if version := await self._store.put(PREFIX + session, encoded(raw), seen.version):
                self._know(session, version, raw)
                return True
        raise StoreUnavailable(
            f"session {session} in {self._store.place} was not asked to drain: it changed during every attempt; try "
            "again"
        )

    async def look_at(self, session: str) -> None:
        """Read its document, unless it is known."""
        if session not in self._view():
            await self._read(session)

    async def look_again_at(self, sessions: Iterable[str]) -> None:
        """Read their documents, known or not: another process may have closed one."""
        await self._read_all(sessions)

    async def look_at_all(self, *, again: bool) -> None:
        """Read the documents of all unknown sessions; `again`: of all sessions."""
        begun_ms = self._clock.lease_ms()
        listed = await self._list()
        for session in list(self._view()):
            seen = self._seen.get(session)
            if session not in listed and (seen is None or seen.read_ms < begun_ms):
                self._forget(session)
        await self._read_all(session for session in listed if again or session not in self._view())

    def shown(self, sessions: Iterable[Session]) -> list[Session]:
        """With the time of their last heartbeat; for other machines an estimate by the wall clocks."""
        return [msgspec.structs.replace(session, beat_ms=self._beat_ms(session)) for session in sessions]

    async def judge(self, holders: Collection[str], others: Collection[str] = ()) -> None:
        """Declare silent sessions dead. `holders` are the sessions that hold jobs or a leadership; `others` are in the
        log for another reason, and must be known, too."""
        view, now = self._view(), self._clock.lease_ms()
        if self._listed_ms is None or now - self._listed_ms > _LIST_MS:
            await self.look_at_all(again=False)
        else:
            await self._read_all(session for session in dict.fromkeys([*holders, *others]) if session not in view)
        await self._read_all(session for session in holders if self._is_watched(session, now))
        silent = [session.id for session in view.values() if self._is_silent(session, now)]
        await _gather(self._declare(session) for session in silent)
        unneeded = [session.id for session in view.values() if session.dead and session.id not in holders]
        await _gather(self._remove(session) for session in unneeded)

    def postpone_silence(self) -> None:
        """Keep sessions that became silent since `judge` alive for a moment: their documents do not say dead."""
        view, now = self._view(), self._clock.lease_ms()
        for session in list(view.values()):
            if self._is_silent(session, now):
                heard_ms = now - round(session.lease_s * 1000) + _MOMENT_MS
                view[session.id] = msgspec.structs.replace(session, beat_ms=heard_ms)

    def _is_silent(self, session: Session, now: int) -> bool:
        return not session.dead and not session.standing and now - session.beat_ms > session.lease_s * 1000

    def _is_watched(self, name: str, now: int) -> bool:
        """Whether it is time to read the document of another machine's session again."""
        session, seen = self._view().get(name), self._seen.get(name)
        if session is None or seen is None or session.dead or self._is_here(seen.raw):
            return False
        return now - seen.read_ms > session.lease_s * 250

    async def _declare(self, name: str) -> None:
        seen = await self._read(name)
        session = self._view().get(name)
        if seen is None or session is None or not self._is_silent(session, self._clock.lease_ms()):
            return
        raw = {**seen.raw, "dead": True}
        if version := await self._store.put(PREFIX + name, encoded(raw), seen.version):
            self._know(name, version, raw)
        else:
            await self._read(name)

    async def _remove(self, name: str) -> None:
        seen = self._seen.pop(name, None)
        if seen is not None:
            await self._store.delete(PREFIX + name, seen.version)

    async def _list(self) -> dict[str, None]:
        """Their ids in order."""
        self._listed_ms = self._clock.lease_ms()
        names: dict[str, None] = {}
        after = ""
        while page := await self._store.list_keys(PREFIX, after=after):
            names.update((key.removeprefix(PREFIX), None) for key in page)
            after = page[-1]
            if len(page) < 1000:
                break
        return names

    async def _read_all(self, sessions: Iterable[str]) -> None:
        await _gather(self._read(session) for session in sessions)

    async def _read(self, session: str) -> _Seen | None:
        stored = await self._store.get(PREFIX + session)
        if stored is None:
            self._forget(session)
            return None
        where = self._log.where(PREFIX + session)
        try:
            raw = msgspec.json.decode(stored.value)
            check_schema(raw, where)
            if raw.get("registry") not in (None, self._log.identity):
                # of an earlier registry in this place, or of the one that has replaced this process's own
                self._forget(session)
                return None
            return self._know(session, stored.version, raw)
        except (msgspec.MsgspecError, LookupError, TypeError) as error:
            raise damaged(where, error) from None

    def _know(self, name: str, version: str, raw: dict[str, Any]) -> _Seen:
        now, before = self._clock.lease_ms(), self._seen.get(name)
        session = msgspec.convert(raw, Session)
        if session.standing and "own_lease_s" in raw:
            session = msgspec.structs.replace(session, lease_s=float(raw["own_lease_s"]))
        if not self._is_here(raw):
            known = self._view().get(name)
            same = before is not None and before.raw.get("beats") == raw.get("beats")
            session = msgspec.structs.replace(session, beat_ms=known.beat_ms if same and known else now)
        seen = self._seen[name] = _Seen(version, raw, now)
        self._view()[name] = session
        return seen

    def _forget(self, session: str) -> None:
        self._seen.pop(session, None)
        self._view().pop(session, None)

    def _is_here(self, raw: dict[str, Any]) -> bool:
        return bool(self._clock_name) and raw.get("clock") == self._clock_name

    def _beat_ms(self, session: Session) -> int:
        seen = self._seen.get(session.id)
        if seen is None or self._is_here(seen.raw):
            return session.beat_ms
        ago_ms = max(0, self._clock.now_ms() - int(seen.raw.get("at_ms", 0)))
        return self._clock.lease_ms() - ago_ms

    def _times(self) -> dict[str, Any]:
        now_ms = self._clock.now_ms()
        return {"beat_ms": self._clock.lease_ms(), "clock": self._clock_name, "at_ms": now_ms}


async def _gather(calls: Iterable[Awaitable[object]]) -> None:
    """Make all calls, a limited number of them concurrently."""
    pending = list(calls)
    for start in range(0, len(pending), _AT_ONCE):
        await asyncio.gather(*pending[start : start + _AT_ONCE])
