"""What a node may ask of the store through a manager: its own sessions, its own rows, and what belongs to those.

A row *belongs* to a node if one of its sessions holds it. It may read such rows, their parents, their siblings below
the same parent, the jobs that they wait for, the members of their group, and jobs that the node itself submitted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ...errors import RoleRefused, SessionLost
from ...model import Job, Session
from ..port import JobStore, Query
from .wire import WireChange

#: calls that a node may make; each is checked below
NODE_CALLS = frozenset(
    {
        "hello",
        "open_session",
        "beat",
        "close_session",
        "drain",
        "sessions",
        "claim",
        "apply",
        "report",
        "insert",
        "get",
        "find",
        "events",
        "awaited",
        "unit_counts",
        "due",
        "queues",
        "open_wake",
        "await_wake",
        "close_wake",
        "put_part",
        "get_part",
    }
)
_PAGE = 1000
#: a session that is opened for the first time began this recently
_NEW_MS = 30_000


class NodeRole:
    """The checks for one node."""

    def __init__(self, store: JobStore, name: str, queues: Callable[[str], Sequence[str] | None]) -> None:
        self._store = store
        self._name = name
        self._queues = queues
        self._own: set[str] = set()
        """sessions that are known to be its own"""
        self._submitted: dict[str, None] = {}

    async def check(self, method: str, values: dict[str, Any]) -> dict[str, Any]:
        """The arguments that the store gets; raises `RoleRefused`."""
        if method not in NODE_CALLS:
            raise self._refused(method, "only managers and operators may")
        if values.get("lead") is not None:
            raise self._refused(method, "a node holds no lead")
        checked = getattr(self, f"_check_{method}", None)
        return values if checked is None else await checked(values)

    async def filtered(self, method: str, result: Any) -> Any:
        """The result without what the node may not see."""
        if method == "get":
            readable = await self._readable([row for row in result if row is not None])
            return [row if row is not None and row.id in readable else None for row in result]
        if method == "sessions":
            return [session for session in result if session.worker == self._name]
        return result

    def submitted(self, ids: Sequence[str]) -> None:
        """Jobs that this node submitted, as far as this manager knows."""
        self._submitted.update(dict.fromkeys(ids))
        while len(self._submitted) > 10 * _PAGE:
            self._submitted.pop(next(iter(self._submitted)))

    # each call ----------------------------------------------------------------------------------

    async def _check_open_session(self, values: dict[str, Any]) -> dict[str, Any]:
        session: Session = values["session"]
        if session.worker != self._name or session.node not in ("", self._name):
            raise self._refused("open_session", f"the session is of {session.worker!r} and node {session.node!r}")
        known = {each.id: each for each in await self._store.sessions()}.get(session.id)
        if known is not None and (known.worker != self._name or known.dead):
            raise SessionLost(session.id)
        # a store may have forgotten a session that was closed: a new one begins now
        if known is None and self._store.clock.now_ms() - session.started_ms > _NEW_MS:
            raise SessionLost(session.id)
        # its beats go over the bus, so no lock and no lease ends it: only the placement leader does
        return {"session": msgspec.structs.replace(session, standing=True, dead=False)}

    async def _check_beat(self, values: dict[str, Any]) -> dict[str, Any]:
        await self._require_own("beat", values["sessions"])
        await self._require_own("beat", [report.session for report in values["reports"]])
        return values

    async def _check_drain(self, values: dict[str, Any]) -> dict[str, Any]:
        await self._require_own("drain", values["sessions"])
        return values

    async def _check_close_session(self, values: dict[str, Any]) -> dict[str, Any]:
        await self._require_own("close_session", [values["session"]])
        return values

    async def _check_report(self, values: dict[str, Any]) -> dict[str, Any]:
        await self._require_own("report", [report.session for report in values["reports"]])
        return values

    async def _check_claim(self, values: dict[str, Any]) -> dict[str, Any]:
        await self._require_own("claim", [values["session"]])
        self._require_queues("claim", values["queues"])
        return values

    async def _check_due(self, values: dict[str, Any]) -> dict[str, Any]:
        self._require_queues("due", values["queues"])
        return values

    async def _check_apply(self, values: dict[str, Any]) -> dict[str, Any]:
        changes: Sequence[WireChange] = values["changes"]
        for change in changes:
            if change.sealed is not None:
                raise self._refused("apply", "a sealed change was made by a worker with its own key")
            if change.holder is None:
                raise self._refused("apply", "a node changes only rows that it holds, as their holder")
            for move in (*change.moves, *([change.on_last] if change.on_last is not None else [])):
                if move.flag not in ("", "note"):
                    raise self._refused("apply", f"a {move.flag} move is an operator's")
            given = [move.fields["session"] for move in change.moves if move.fields.get("session") is not None]
            await self._require_own("apply", [change.holder, *given])
            for new in change.spawn:
                if new.job.parent not in (None, change.before.id, change.before.parent):
                    raise self._refused("apply", f"it spawns a unit of {new.job.parent}, which is not its own")
            if change.actor != change.holder:
                raise self._refused("apply", f"the actor {change.actor!r} is not the holder")
        return values

    async def _check_insert(self, values: dict[str, Any]) -> dict[str, Any]:
        for new in values["jobs"]:
            if new.job.parent is not None:
                await self._require_readable("insert", new.job.parent)
        return values

    async def _check_find(self, values: dict[str, Any]) -> dict[str, Any]:
        query: Query = values["query"]
        if query.session is not None:
            await self._require_own("find", [query.session])
        elif query.parent is not None:
            await self._require_readable("find", query.parent)
        elif query.group is not None:
            await self._require_readable("find", query.group)
        else:
            raise self._refused("find", "a node finds rows by its session, or by the parent or group of its own rows")
        return values

    async def _check_events(self, values: dict[str, Any]) -> dict[str, Any]:
        await self._require_readable("events", values["job_id"])
        return values

    async def _check_awaited(self, values: dict[str, Any]) -> dict[str, Any]:
        await self._require_readable("awaited", values["job_id"])
        return values

    async def _check_unit_counts(self, values: dict[str, Any]) -> dict[str, Any]:
        await self._require_readable("unit_counts", values["parent"])
        return values

    async def _check_open_wake(self, values: dict[str, Any]) -> dict[str, Any]:
        for topic in values["topics"]:
            kind, _, name = topic.partition(":")
            if kind == "session":
                await self._require_own("open_wake", [name])
            elif kind == "queue":
                self._require_queues("open_wake", [name])
        return values

    # within -------------------------------------------------------------------------------------

    async def _require_own(self, method: str, sessions: Sequence[str]) -> None:
        unknown = set(sessions) - self._own
        if unknown:
            self._own = {each.id for each in await self._store.sessions() if each.worker == self._name}
            foreign = sorted(set(sessions) - self._own)
            # a session of its own that is gone is not foreign: the store answers that it is unknown
            foreign = [each for each in foreign if not _is_session_of(self._name, each)]
            if foreign:
                raise self._refused(method, f"session {foreign[0]} is not its own")

    def _require_queues(self, method: str, queues: Sequence[str]) -> None:
        allowed = self._queues(self._name)
        if allowed is None:
            return
        if not allowed:
            rule = f"this manager has no certificate of it, which names its queues; give it node-{self._name}.pem"
            raise self._refused(method, rule)
        for queue in queues:
            if queue not in allowed:
                raise self._refused(method, f"its certificate names the queues {', '.join(allowed)}, not {queue!r}")

    async def _require_readable(self, method: str, job_id: str) -> None:
        [row] = await self._store.get([job_id])
        if row is None or not await self._readable([row]):
            raise self._refused(method, f"job {job_id} is not its own")

    async def _readable(self, rows: Sequence[Job]) -> set[str]:
        """The ids of those rows that the node may read. The store is asked a few times, however many rows there are:
        the caller repeats a call that takes too long."""
        found = {row.id for row in rows if row.id in self._submitted or (row.session in self._own)}
        if len(found) == len(rows):
            return found
        held = await self._held()
        parents = {each.parent for each in held.values() if each.parent is not None}
        found |= {
            row.id
            for row in rows
            if row.id in held
            or row.id in parents
            or (row.parent is not None and row.parent in {*held, *parents})
            or (row.group is not None and row.group in held)
        }
        unknown = [row for row in rows if row.id not in found]
        if unknown:
            firsts = await asyncio.gather(*(self._store.events(row.id, limit=1) for row in unknown))
            actor = actor_of(self._name)
            found |= {row.id for row, first in zip(unknown, firsts, strict=True) if first and first[0].actor == actor}
        if any(row.id not in found for row in unknown):
            found |= {job_id for awaited in await asyncio.gather(*map(self._store.awaited, held)) for job_id in awaited}
        return found & {row.id for row in rows}

    async def _held(self) -> Mapping[str, Job]:
        own = [each.id for each in await self._store.sessions() if each.worker == self._name and not each.dead]
        pages = await asyncio.gather(
            *(self._store.find(Query(session=session, value_bytes=0), limit=_PAGE) for session in own)
        )
        return {row.id: row for page in pages for row in page.jobs}

    def _refused(self, request: str, rule: str) -> RoleRefused:
        return RoleRefused("node", self._name, request, rule)


def _is_session_of(worker: str, session: str) -> bool:
    """Whether the id of a session begins with exactly this name (see `Claims.open_session`)."""
    return session.rpartition(".")[0] == worker


def actor_of(node: str) -> str:
    """Who a node is in the audit trail of the jobs that it submits."""
    return f"node:{node}"


__all__ = ["NODE_CALLS", "NodeRole", "actor_of"]
