"""What a node may ask of the store through a manager: its own sessions, its own rows, and what belongs to those.

A row *belongs* to a node if one of its sessions holds it. It may read such rows, their parents, their siblings below
the same parent, the jobs that they wait for, the members of their group, and jobs that the node itself submitted.
It changes the rows that it holds, only in the fields that an attempt decides, and makes new jobs as `submit` does. If
it holds the driver of a job, it moves that job and its units, too. All that it sends is checked against what is stored,
never against what it says about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ...errors import InvalidInput, Overloaded, RoleRefused, SessionLost
from ...kinds import kinds
from ...lifecycle import ABANDONED, table_of
from ...model import BLANK, Job, Lane, Session, driver_id, driver_ids, is_reserved
from ..port import ChangeResult, JobStore, NewJob, Query
from .wire import WireChange, read_move

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
#: sessions that a node may have open: its engines, and those of its last starts that are not closed yet
_SESSIONS = 256
_SESSION_BYTES = 256 * 1024
#: ids, sessions or jobs in one call
_MANY = 1000
_LONGEST_WORD = 200
_REASON, _DETAILS = 10_000, 256 * 1024
#: how far the clock of a node may be ahead of that of the store
_AHEAD_MS = 60_000
#: what a wake may be about, beside its sessions and queues
_TOPICS = ("job",)
#: the fields that an attempt may change with a move
_FIELDS = frozenset(
    {
        "result", "error", "starts", "failures", "crashes", "releases", "losses", "due_ms", "rank", "extra_ms",
        "expires_ms", "session", "claimed_ms", "started_ms", "token", "reason", "progress", "progress_ms",
    }
)  # fmt: skip
#: the fields that the driver of a job may change, in the job and in its units
_DRIVEN_FIELDS = frozenset({"result", "error", "reason", "started_ms", "expires_ms"})
#: the fields of a new row that its caller decides; all others are those of a row that has not begun
_SUBMITTED = frozenset(
    {
        "id", "kind", "name", "queue", "parent", "unit", "group", "options", "key", "unique_key", "concurrency_key",
        "priority", "status", "reason", "version", "created_ms", "changed_ms", "due_ms", "expires_ms", "head",
        "lane", "rank", "payload",
    }
)  # fmt: skip


class NodeRole:
    """The checks for one node."""

    def __init__(self, store: JobStore, name: str, queues: Callable[[str], Sequence[str] | None]) -> None:
        self._store = store
        self._name = name
        self._queues = queues
        self._own: set[str] = set()
        """sessions that are known to be its own"""
        self._submitted: dict[str, None] = {}

    def check_method(self, method: str) -> None:
        """Refuse what a node may not call; raises `RoleRefused`."""
        if method not in NODE_CALLS:
            raise self._refused(method[:40], "only managers and operators may")

    async def check(self, method: str, values: dict[str, Any]) -> dict[str, Any]:
        """The arguments that the store gets; raises `RoleRefused`."""
        if values.get("lead") is not None:
            raise self._refused(method, "a node holds no lead")
        checked = getattr(self, f"_check_{method}", None)
        return values if checked is None else await checked(values)

    async def filtered(self, method: str, result: Any) -> Any:
        """The result without what the node may not see."""
        if method == "get":
            view = _View(self._store)
            return [row if row is not None and await self._may_read(row, view) else None for row in result]
        if method == "sessions":
            return [session for session in result if self._is_own(session)]
        return result

    def visible(self, result: ChangeResult) -> ChangeResult:
        """The result of a change without the content of a row that the node no longer holds."""
        row = result.job
        if row is None or result.outcome == "applied" or row.session in self._own:
            return result
        hidden = msgspec.structs.replace(row, payload=b"", result=None, checkpoint=None, error=None, progress=None)
        return msgspec.structs.replace(result, job=hidden)

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
        if not _is_session_of(self._name, session.id) or len(session.id) > _LONGEST_WORD:
            raise self._refused("open_session", f"the id of its session does not begin with {self._name}")
        if len(msgspec.msgpack.encode(session)) > _SESSION_BYTES:
            raise self._refused("open_session", f"a session has at most {_SESSION_BYTES} bytes of labels and tasks")
        stored = await self._store.sessions()
        known = next((each for each in stored if each.id == session.id), None)
        if known is not None and (not self._is_own(known) or known.dead):
            raise SessionLost(session.id)
        # a store may have forgotten a session that was closed: a new one begins now
        if known is None and self._store.clock.now_ms() - session.started_ms > _NEW_MS:
            raise SessionLost(session.id)
        if known is None and sum(self._is_own(each) and not each.dead for each in stored) >= _SESSIONS:
            raise Overloaded(f"too many sessions of node {self._name} are open", 5.0)
        # its beats go over the bus, so no lock and no lease ends it: only the placement leader does
        return {"session": msgspec.structs.replace(session, standing=True, dead=False)}

    async def _check_beat(self, values: dict[str, Any]) -> dict[str, Any]:
        await self._require_own("beat", values["sessions"])
        await self._require_own("beat", [report.session for report in values["reports"]])
        return values

    async def _check_drain(self, values: dict[str, Any]) -> dict[str, Any]:
        await self._require_own("drain", values["sessions"])
        # an engine that ends marks its own session, which is not a request to drain the node
        by = values["by"] if values["by"] in values["sessions"] else actor_of(self._name)
        return {**values, "by": by}

    async def _check_close_session(self, values: dict[str, Any]) -> dict[str, Any]:
        await self._require_own("close_session", [values["session"]])
        return values

    async def _check_report(self, values: dict[str, Any]) -> dict[str, Any]:
        await self._require_own("report", [report.session for report in values["reports"]])
        return values

    async def _check_claim(self, values: dict[str, Any]) -> dict[str, Any]:
        await self._require_own("claim", [values["session"]])
        self._require_queues("claim", values["queues"])
        if len(values.get("mark") or "") > _LONGEST_WORD:
            raise InvalidInput("mark", f"has at most {_LONGEST_WORD} characters")
        return {**values, "n": min(values["n"], _MANY)}

    async def _check_get(self, values: dict[str, Any]) -> dict[str, Any]:
        if len(values["ids"]) > _MANY:
            raise InvalidInput("ids", f"a node reads at most {_MANY} rows in one call")
        return values

    async def _check_due(self, values: dict[str, Any]) -> dict[str, Any]:
        self._require_queues("due", values["queues"])
        return values

    async def _check_apply(self, values: dict[str, Any]) -> dict[str, Any]:
        changes: Sequence[WireChange] = values["changes"]
        for change in changes:
            if change.sealed is not None:
                raise self._refused("apply", "a sealed change was made by a worker with its own key")
            if change.holder is None and change.spawn:
                raise self._refused("apply", "only the holder of a row makes jobs below it")
            for move in change.moves:
                if move.flag not in ("", "note"):
                    raise self._refused("apply", f"a {move.flag} move is an operator's")
                if move.to == "dispatched":
                    raise self._refused("apply", "only the leader assigns work")
                if foreign := sorted(set(move.fields) - (_DRIVEN_FIELDS if change.holder is None else _FIELDS)):
                    raise self._refused("apply", f"an attempt does not change {foreign[0][:40]}")
                self._check_size(move.reason, move.details)
            given = [move.fields["session"] for move in change.moves if move.fields.get("session") is not None]
            await self._require_own("apply", [change.actor if change.holder is None else change.holder, *given])
            if change.holder not in (None, change.actor):
                raise self._refused("apply", f"the actor {change.actor[:80]!r} is not the holder")
            if change.at_ms > self._store.clock.now_ms() + _AHEAD_MS:
                raise InvalidInput("at_ms", "is in the future")
        return values

    async def check_change(self, change: WireChange, row: Job) -> None:
        """The rest of the checks of a change, with the row that is stored."""
        if change.holder is None:
            if not await self._drives(row, change.actor):
                raise self._refused("apply", f"job {row.id} is not its own, and it does not hold its driver")
        elif row.session != change.holder and not await self._has_held(row, change.holder):
            raise self._refused("apply", f"job {row.id} is not its own")
        tokens = [move.fields["token"] for move in change.moves if "token" in move.fields]
        if any(token != row.token + 1 for token in tokens):
            raise self._refused("apply", "a token grows by one")
        # what every unit says, for a driver that ends without moving its job
        if change.on_last is not None and read_move(change.on_last) != ABANDONED:
            raise self._refused("apply", "the last unit of a job does not decide about the job")
        if change.spawn:
            await self._check_new("apply", change.spawn, row)

    async def _drives(self, row: Job, session: str) -> bool:
        """Whether a session holds the driver of a job: of this one, or of that whose unit this is."""
        [job] = [row] if row.parent is None else await self._store.get([row.parent])
        if job is None:
            return False
        [driver] = await self._store.get([driver_id(job.id, job.token)])
        return driver is not None and driver.session == session

    async def _has_held(self, row: Job, session: str) -> bool:
        """Whether a session that does not hold a row held it before: its write is late, and the store records it."""
        for event in await self._store.events(row.id, after=max(0, row.version - _MANY), limit=_MANY):
            if event.actor == session or (event.details is not None and session in event.details):
                return True
        return False

    def _check_size(self, reason: str | None, details: dict[str, Any] | None) -> None:
        if len(reason or "") > _REASON or (details and len(msgspec.msgpack.encode(details)) > _DETAILS):
            raise InvalidInput("moves", f"a reason has at most {_REASON} characters, details {_DETAILS} bytes")

    async def _check_insert(self, values: dict[str, Any]) -> dict[str, Any]:
        await self._check_new("insert", values["jobs"], None)
        return values

    async def _check_new(self, method: str, jobs: Sequence[NewJob], by: Job | None) -> None:
        """New jobs, which `by` spawns (None: they are inserted)."""
        together = {new.job.id for new in jobs}
        view = _View(self._store)
        for new in jobs:
            job = new.job
            self._check_start(method, new)
            if job.parent is not None and not await self._may_add_to(job.parent, by, together):
                raise self._refused(method, f"it makes a unit of {job.parent[:40]}, which is not its own")
            needed = [job.group] if job.group is not None else []
            for other in (*needed, *new.after):
                if other not in together:
                    await self._require_readable(method, other, view)

    def _check_start(self, method: str, new: NewJob) -> None:
        """Whether a new row is as `submit` makes it."""
        job = new.job
        for field in BLANK.__struct_fields__:
            if field not in _SUBMITTED and getattr(job, field) != getattr(BLANK, field):
                raise self._refused(method, f"a new job has no {field} yet")
        event = new.events[0] if len(new.events) == 1 else None
        begins = event is not None and (event.job_id, event.seq, event.source, event.to, event.token, event.flag) == (
            job.id,
            1,
            None,
            job.status,
            0,
            "",
        )
        if not begins or job.version != 1 or job.status not in table_of(job.parent).start:
            raise self._refused(method, "a new job begins with its submit")
        if job.lane not in (Lane.READY, Lane.DUE):
            raise self._refused(method, "a new job waits, or is due")
        if max(job.created_ms, job.changed_ms) > self._store.clock.now_ms() + _AHEAD_MS:
            raise InvalidInput("created_ms", "is in the future")
        if is_reserved(job.queue) and (job.parent is not None or job.queue != _queue_of(job.kind)):
            raise self._refused(method, f"the queue {job.queue} is reserved")
        keys = new.key is None or (new.key.scope, new.key.name) == (job.name, job.key)
        if not keys or (job.unique_key is not None and not job.unique_key.startswith(f"{job.name}/")):
            raise self._refused(method, "the keys of a job are those of its task")
        self._check_size(job.reason, None)

    async def _may_add_to(self, parent: str, by: Job | None, together: set[str]) -> bool:
        """Whether new units may be below a job: it is new, its own, or held, or the spawning row drives it."""
        if parent in together or parent in self._submitted or (by is not None and by.id == parent):
            return True
        [row] = await self._store.get([parent])
        if row is None:
            return False
        if row.session is not None and row.session in self._own:
            return True
        if by is not None:
            return by.parent == parent and by.id in driver_ids(parent, row.token)
        return await self._is_submitter(row)

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
            elif kind not in _TOPICS:
                raise self._refused("open_wake", f"the topic {topic[:40]!r} is not a node's")
        return values

    # within -------------------------------------------------------------------------------------

    async def _require_own(self, method: str, sessions: Sequence[str]) -> None:
        if len(sessions) > _MANY:
            raise InvalidInput("sessions", f"at most {_MANY} in one call")
        if set(sessions) - self._own:
            stored = {each.id: each for each in await self._store.sessions()}
            self._own = {each.id for each in stored.values() if self._is_own(each)}
            foreign = sorted(set(sessions) - self._own)
            # a session of its own that is gone is not foreign: the store answers that it is unknown
            foreign = [each for each in foreign if each in stored or not _is_session_of(self._name, each)]
            if foreign:
                raise self._refused(method, f"session {foreign[0][:80]} is not its own")

    def _is_own(self, session: Session) -> bool:
        """A direct worker or a manager may have the name of a node: its sessions do not stand."""
        return session.worker == self._name and session.standing

    def _require_queues(self, method: str, queues: Sequence[str]) -> None:
        if len(queues) > _MANY:
            raise InvalidInput("queues", f"at most {_MANY} in one call")
        if reserved := [queue for queue in queues if is_reserved(queue)]:
            raise self._refused(method, f"the queue {reserved[0][:80]} is reserved")
        allowed = self._queues(self._name)
        if allowed is None:
            return
        if not allowed:
            rule = f"this manager has no certificate of it, which names its queues; give it node-{self._name}.pem"
            raise self._refused(method, rule)
        for queue in queues:
            if queue not in allowed:
                raise self._refused(method, f"its certificate names the queues {', '.join(allowed)}, not {queue!r}")

    async def _require_readable(self, method: str, job_id: str, view: _View | None = None) -> None:
        [row] = await self._store.get([job_id])
        if row is None or not await self._may_read(row, view or _View(self._store)):
            raise self._refused(method, f"job {job_id[:40]} is not its own")

    async def _may_read(self, row: Job, view: _View) -> bool:
        if row.id in self._submitted or (row.session is not None and row.session in self._own):
            return True
        held = await view.held(self._is_own)
        parents = {each.parent for each in held.values() if each.parent is not None}
        if row.id in held or row.id in parents or (row.parent is not None and row.parent in {*held, *parents}):
            return True
        if row.group is not None and row.group in held:
            return True
        return await self._is_submitter(row) or row.id in await view.awaited()

    async def _is_submitter(self, row: Job) -> bool:
        first = await self._store.events(row.id, limit=1)
        return bool(first) and first[0].actor == actor_of(self._name)

    def _refused(self, request: str, rule: str) -> RoleRefused:
        return RoleRefused("node", self._name, request, rule)


class _View:
    """What a node holds, read once for all rows of a call."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._held: Mapping[str, Job] | None = None
        self._awaited: set[str] | None = None

    async def held(self, is_own: Callable[[Session], bool]) -> Mapping[str, Job]:
        if self._held is None:
            found: dict[str, Job] = {}
            for session in await self._store.sessions():
                if is_own(session) and not session.dead:
                    page = await self._store.find(Query(session=session.id, value_bytes=0), limit=_PAGE)
                    found.update({row.id: row for row in page.jobs})
            self._held = found
        return self._held

    async def awaited(self) -> set[str]:
        """The jobs that the held rows wait for, or waited for."""
        if self._awaited is None:
            self._awaited = set()
            for job_id in self._held or ():
                self._awaited.update(await self._store.awaited(job_id))
        return self._awaited


def _queue_of(kind: str) -> str:
    """The reserved queue of a kind of job; empty: it has none."""
    return next((each.queue for each in kinds() if each.name == kind), "")


def _is_session_of(worker: str, session: str) -> bool:
    """Whether the id of a session begins with exactly this name (see `Claims.open_session`)."""
    return session.rpartition(".")[0] == worker


def actor_of(node: str) -> str:
    """Who a node is in the audit trail of the jobs that it submits."""
    return f"node:{node}"


__all__ = ["NODE_CALLS", "NodeRole", "actor_of"]
