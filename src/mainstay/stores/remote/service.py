"""`StoreService`: a manager's side of the store over the bus. It answers calls with the real store.

Each request is checked in this order: cluster and environment, version, role. Role and name of the caller come from the
subject, which the permissions of the bus guarantee. Requests of one class never hold up those of another; when too many
of a class wait, `dispatch` and `data` are refused with the time to try again, `control` never.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ...bus import Bus, BusMessage, MessageClass, Subscription
from ...errors import (
    BusError,
    InvalidInput,
    MainstayError,
    Overloaded,
    PayloadTooLarge,
    RoleRefused,
    StoreUnavailable,
    VersionSkew,
    WrongCluster,
)
from ...model import Job
from ...storage import shown_url
from ..durability import LEVELS
from ..port import CALLS, AnyChange, Audited, ChangeResult, JobStore, Wake
from .node_role import NodeRole, actor_of
from .store import PART_BYTES, PIECE_BYTES, POLL_S, RemoteHello
from .unanswered_claims import release_of
from .versions import check_versions
from .wire import (
    ApplyArguments,
    StoreAnswer,
    StoreRequest,
    WireChange,
    encode,
    fault_of,
    read_change,
    resealed,
    wire_call,
)

log = logging.getLogger("mainstay.stores.remote")

GROUP = "managers"
ROLES = ("manager", "node", "operator")
#: requests of a class that are answered at a time; more wait, and then are refused
AT_ONCE: Mapping[MessageClass, int] = {
    MessageClass.CONTROL: 2000,
    MessageClass.DISPATCH: 500,
    MessageClass.DATA: 500,
}
#: requests in all that are under way, with those that wait for a wake
_TASKS = 20_000
_RETRY_AFTER_S = 0.5
#: how long requests may go on when the service stops
_STOP_S = 2.0
_TOO_LARGE = "the answer to its claim would have been too large"
#: bytes of a claim's rows in one answer
CLAIM_BYTES = 4 * 1024 * 1024
#: bytes of parts that a manager keeps for callers, in all; and the largest body
_PARTS_BYTES = 256 * 1024 * 1024
_LARGEST_BYTES = 64 * 1024 * 1024
_KEPT_S = 120.0
_WAKE_KEPT_S = 60.0
#: nodes whose sessions and jobs a manager remembers
_NODES_KEPT = 2000
#: rows, and bytes of their values, that a manager keeps for the changes of callers
_ROWS_KEPT = 20_000
_ROWS_BYTES = 64 * 1024 * 1024
#: the fields of a row that say how far it has come, and who holds it
_PLACE = ("status", "version", "head", "token", "session", "settled_ms", "starts", "failures", "crashes", "releases")
_decode_request = msgspec.msgpack.Decoder(StoreRequest).decode


class _NothingDone(StoreUnavailable):
    """The caller sends the same call again at once."""


class StoreService:
    """A service: `start`, then `stop`. The store and the bus belong to the caller."""

    def __init__(
        self,
        store: JobStore,
        bus: Bus,
        *,
        manager: str,
        cluster: str,
        environment: str = "default",
        version: str,
        allowed_queues: Callable[[str], Sequence[str] | None] = lambda _: None,
        may_claim: Callable[[str], bool] = lambda _: True,
        on_beat: Callable[[str, Sequence[str]], None] = lambda _name, _sessions: None,
        at_once: Mapping[MessageClass, int] = AT_ONCE,
    ) -> None:
        self._store = store
        self._bus = bus
        self._manager = manager
        self._cluster = cluster
        self._environment = environment
        self._version = version
        self._allowed_queues = allowed_queues
        self._may_claim = may_claim
        self._on_beat = on_beat
        self._at_once = at_once
        self._nodes: dict[str, NodeRole] = {}
        self._rows: OrderedDict[str, Job] = OrderedDict()
        """rows that were sent to callers: their changes name them without the payload"""
        self._rows_bytes = 0
        self._incoming: OrderedDict[tuple[str, str], dict[int, bytes]] = OrderedDict()
        self._outgoing: OrderedDict[tuple[str, str], list[bytes]] = OrderedDict()
        self._wakes: dict[str, _HeldWake] = {}
        self._wake_number = 0
        self._busy: Counter[MessageClass] = Counter()
        self._subscriptions: list[Subscription[BusMessage]] = []
        self._readers: list[asyncio.Task[None]] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        #: refused requests, by reason: cluster, version, role, input, size, overload, late
        self.refused: Counter[str] = Counter()
        #: changes that the store refused because their claim had an old token
        self.stale = 0
        #: answered requests, by method
        self.answered: Counter[str] = Counter()

    async def start(self) -> None:
        """Begin to answer."""
        for kind in AT_ONCE:
            await self._listen(f"{kind}.store.>", GROUP)
        await self._listen(f"control.at.{self._manager}.store.>", None)

    async def stop(self) -> None:
        """Take no more requests, and finish those that are under way. Safe to call twice."""
        for subscription in self._subscriptions:
            await subscription.close()
        self._subscriptions = []
        readers, self._readers = self._readers, []
        if readers:
            await asyncio.wait(readers, timeout=_STOP_S)
            for reader in readers:  # one may wait for a store that stands still
                reader.cancel()
        for wake in list(self._wakes.values()):
            await wake.close()
        self._wakes.clear()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=_STOP_S)
        for task in list(self._tasks):
            task.cancel()

    # requests -----------------------------------------------------------------------------------

    async def _listen(self, pattern: str, group: str | None) -> None:
        subscription = await self._bus.subscribe(pattern, group=group)
        self._subscriptions.append(subscription)
        self._readers.append(asyncio.create_task(self._read(subscription), name=f"mainstay {pattern}"))

    async def _read(self, requests: Subscription[BusMessage]) -> None:
        async for message in requests:
            while (
                len(self._tasks) > _TASKS
            ):  # the store stands still: what arrives waits in the bounded queue of the bus
                await asyncio.wait(list(self._tasks), return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(self._answer(message))
            self._tasks[task] = None
            task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _answer(self, message: BusMessage) -> None:
        kind = message.message_class
        self._busy[kind] += 1
        try:
            answer = await self._answer_of(message, kind)
        finally:
            self._busy[kind] -= 1
        if message.reply is not None:
            with contextlib.suppress(BusError):  # the caller asks again
                await self._bus.publish(message.reply, msgspec.msgpack.encode(answer))

    async def _answer_of(self, message: BusMessage, kind: MessageClass) -> StoreAnswer:
        # CLASS.store.ROLE.NAME.METHOD, or control.at.MANAGER.store.ROLE.NAME.METHOD; a name may contain dots
        words = message.subject.split(".store.", 1)[1].split(".")
        role, name, method = words[0], ".".join(words[1:-1]), words[-1]
        clock = self._store.clock
        loop = asyncio.get_running_loop()
        began_s, again = loop.time(), False
        try:
            request = _decode_request(message.body)
            body = await self._checked(request, role, name, method, kind)
            self.answered[method] += 1
            answer = self._fitted(name, request.id, body)
            return msgspec.structs.replace(answer, took=round((loop.time() - began_s) * 1000))
        except MainstayError as error:
            self._count(error)
            fault, again = fault_of(error), isinstance(error, _NothingDone)
        except msgspec.MsgspecError as error:
            self.refused["input"] += 1
            fault = fault_of(InvalidInput("request", f"{method} cannot be read: {error}"))
        except Exception as error:
            log.exception("a call failed method=%s caller=%s:%s", method, role, name)
            fault = fault_of(StoreUnavailable(f"manager {self._manager} failed: {type(error).__name__}: {error}"))
        took = round((loop.time() - began_s) * 1000)
        return StoreAnswer(
            m=self._manager, now=clock.now_ms(), lease=clock.lease_ms(), error=fault, again=again, took=took
        )

    async def _checked(self, request: StoreRequest, role: str, name: str, method: str, kind: MessageClass) -> bytes:
        if (request.c, request.e) != (self._cluster, self._environment):
            raise WrongCluster(f"{self._cluster}/{self._environment}", f"{request.c[:80]}/{request.e[:80]}")
        check_versions(self._version, request.v)
        if role not in ROLES:
            raise RoleRefused(role[:40], name[:80], method[:40], f"the roles are {', '.join(ROLES)}")
        if kind is not MessageClass.CONTROL and self._busy[kind] > self._at_once[kind]:
            raise Overloaded(kind.value, _RETRY_AFTER_S)
        if request.until and self._store.clock.now_ms() > request.until:
            self.refused["late"] += 1
            raise _NothingDone(f"{method} arrived after its caller had stopped waiting")
        arguments = self._joined(request, name) if request.parts else bytes(request.a)
        return await self._call(role, name, method, arguments)

    def _count(self, error: MainstayError) -> None:
        reasons: dict[type[MainstayError], str] = {
            WrongCluster: "cluster",
            VersionSkew: "version",
            RoleRefused: "role",
            PayloadTooLarge: "size",
            Overloaded: "overload",
        }
        reason = reasons.get(type(error))
        if reason is not None:
            self.refused[reason] += 1
            log.warning("refused reason=%s: %s", reason, error)

    async def _call(self, role: str, name: str, method: str, body: bytes) -> bytes:
        node = self._node(name) if role == "node" else None
        own = _OWN.get(method)
        if own is not None:
            values = msgspec.msgpack.decode(body)
            if node is not None:
                values = await node.check(method, values)
            return encode(await own(self, name, values))
        if method not in CALLS or method == "close":
            raise RoleRefused(role, name, method[:40], "the store has no such call")
        wire = wire_call(method)
        values = wire.decode(body)
        if node is not None:
            values = await node.check(method, values)
        result = await self._run(method, values, node=node, name=name)
        if node is not None:
            result = await node.filtered(method, result)
        return encode(result)

    def _node(self, name: str) -> NodeRole:
        found = self._nodes.get(name)
        if found is None:
            found = self._nodes[name] = NodeRole(self._store, name, self._allowed_queues)
            if len(self._nodes) > _NODES_KEPT:  # what it knew is read from the store again
                del self._nodes[next(iter(self._nodes))]
        return found

    # calls of the port --------------------------------------------------------------------------

    async def _run(self, method: str, values: dict[str, Any], *, node: NodeRole | None, name: str) -> Any:
        if method == "apply":
            return await self._apply(ApplyArguments(**values))
        if method == "claim":
            # an engine can be heard although its node is not: what it gets would be taken back again and again
            return await self._claim(values) if node is None or self._may_claim(name) else []
        if method in ("insert", "tick"):
            actor = None if node is None else actor_of(name)
            values["jobs"] = [resealed(new, self._store.chain, actor=actor) for new in values["jobs"]]
        for report in values.get("reports", ()):
            self._forget(report.job_id)  # a report changes the row without a new version
        if method == "mend":
            values["found"] = _with_key(values["found"])
        result = await getattr(self._store, method)(**values)
        if method == "insert" and node is not None:
            node.submitted([each.id for each in result])
        if method == "beat" and node is not None:
            self._on_beat(name, values["sessions"])
        if method == "get":
            self._keep(row for row in result if row is not None)
        return result

    async def _claim(self, values: dict[str, Any]) -> list[Job]:
        """The rows of a claim, as far as one answer holds them; the others are given back."""
        rows: list[Job] = await self._store.claim(**values)
        self._keep(rows)
        size = 0
        for place, row in enumerate(rows):
            size += len(row.payload) + len(row.checkpoint or b"")
            if size > CLAIM_BYTES and place:
                await self._give_back(rows[place:])
                return rows[:place]
        return rows

    async def _give_back(self, rows: Sequence[Job]) -> None:
        now_ms = self._store.clock.now_ms()
        await self._store.apply([release_of(row, reason=_TOO_LARGE, at_ms=now_ms) for row in rows])

    async def _apply(self, arguments: ApplyArguments) -> list[ChangeResult]:
        made = await self._apply_once(arguments)
        again = [place for place, result in enumerate(made) if self._was_old(arguments.changes[place], result)]
        if not again:
            return made
        # another manager took a report of the row, which changes it without a new version. The rows are read now
        if arguments.together:
            return await self._apply_once(arguments)
        changes = [arguments.changes[place] for place in again]
        second = await self._apply_once(msgspec.structs.replace(arguments, changes=changes))
        for place, result in zip(again, second, strict=True):
            made[place] = result
        return made

    def _was_old(self, wire: WireChange, result: ChangeResult) -> bool:
        """Whether a change was refused because the row that was kept here was not the stored one."""
        return (
            result.outcome == "conflict"
            and wire.sealed is None
            and result.job is not None
            and _is_at(result.job, wire.before)
        )

    async def _apply_once(self, arguments: ApplyArguments) -> list[ChangeResult]:
        rows = await self._rows_of([wire.before for wire in arguments.changes])
        changes: list[AnyChange] = []
        missing: dict[int, ChangeResult] = {}
        for place, wire in enumerate(arguments.changes):
            row = rows.get(wire.before.id)
            if row is None:
                missing[place] = ChangeResult("missing")
            elif wire.sealed is not None:
                changes.append(wire.sealed)
            else:
                change = read_change(wire, _before(wire.before, row))
                spawn = tuple(resealed(new, self._store.chain) for new in change.spawn)
                changes.append(msgspec.structs.replace(change, spawn=spawn) if spawn else change)
        if missing and arguments.together:
            return [missing.get(place) or ChangeResult("withheld") for place in range(len(arguments.changes))]
        results = iter(await self._store.apply(changes, lead=arguments.lead, together=arguments.together))
        made = [missing.get(place) or next(results) for place in range(len(arguments.changes))]
        for result in made:
            self.stale += result.outcome == "stale"
            if result.job is not None:
                if result.job.settled_ms is None:
                    self._keep([result.job])
                else:
                    self._forget(result.job.id)
        return made

    async def _rows_of(self, sent: Sequence[Job]) -> dict[str, Job]:
        """The stored rows of changes; a row that was kept counts if the caller saw the same."""
        found = {row.id: kept for row in sent if (kept := self._rows.get(row.id)) is not None and _is_same(kept, row)}
        unknown = [row.id for row in sent if row.id not in found]
        if unknown:
            found |= {row.id: row for row in await self._store.get(unknown) if row is not None}
        return found

    def _keep(self, rows: Any) -> None:
        for row in rows:
            self._forget(row.id)
            self._rows[row.id] = row
            self._rows_bytes += _size(row)
        while len(self._rows) > _ROWS_KEPT or self._rows_bytes > _ROWS_BYTES:
            self._forget(next(iter(self._rows)))

    def _forget(self, job_id: str) -> None:
        row = self._rows.pop(job_id, None)
        if row is not None:
            self._rows_bytes -= _size(row)

    # calls of the wire --------------------------------------------------------------------------

    async def _hello(self, name: str, values: Mapping[str, Any]) -> RemoteHello:
        del name, values
        levels: dict[str, str] = {}
        refused: dict[str, str] = {}
        for level in LEVELS:
            try:
                levels[level] = self._store.durability_of(level)
            except InvalidInput as error:
                refused[level] = error.rule
        return RemoteHello(
            url=shown_url(self._store.url), durability=self._store.durability, levels=levels, refused=refused
        )

    async def _put_part(self, name: str, values: Mapping[str, Any]) -> bool:
        call, number, of, data = (values[key] for key in ("call", "number", "of", "data"))
        if not 0 <= number < of or of * PART_BYTES > _LARGEST_BYTES + PART_BYTES or len(data) > PART_BYTES:
            raise PayloadTooLarge(
                "body", f"{of} parts of {len(data)} bytes; at most {_LARGEST_BYTES} bytes are accepted"
            )
        if (name, call) not in self._incoming:
            asyncio.get_running_loop().call_later(_KEPT_S, lambda: self._incoming.pop((name, call), None))
        parts = self._incoming.setdefault((name, call), {})
        parts[number] = data
        while sum(len(part) for each in self._incoming.values() for part in each.values()) > _PARTS_BYTES:
            self._incoming.popitem(last=False)
        return True

    def _joined(self, request: StoreRequest, name: str) -> bytes:
        parts = self._incoming.pop((name, request.id), {})
        missing = [number for number in range(request.parts) if number not in parts]
        if missing:
            raise _NothingDone(f"part {missing[0]} of {request.parts} is missing; it is sent again")
        return b"".join(parts[number] for number in range(request.parts))

    def _fitted(self, name: str, call_id: str, body: bytes) -> StoreAnswer:
        clock = self._store.clock
        answer = StoreAnswer(m=self._manager, now=clock.now_ms(), lease=clock.lease_ms())
        if len(body) <= PART_BYTES:
            return msgspec.structs.replace(answer, ok=msgspec.Raw(body))
        pieces = [body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES)]
        self._outgoing[name, call_id] = pieces
        while sum(len(piece) for each in self._outgoing.values() for piece in each) > _PARTS_BYTES:
            self._outgoing.popitem(last=False)
        asyncio.get_running_loop().call_later(_KEPT_S, lambda: self._outgoing.pop((name, call_id), None))
        return msgspec.structs.replace(answer, parts=len(pieces))

    async def _get_part(self, name: str, values: Mapping[str, Any]) -> bytes:
        pieces = self._outgoing.get((name, values["call"]))
        if pieces is None or not 0 <= values["number"] < len(pieces):
            raise _NothingDone("the parts of this answer are no longer kept; the call is sent again")
        piece: bytes = pieces[values["number"]]
        return piece

    async def _open_wake(self, name: str, values: Mapping[str, Any]) -> str:
        self._forget_wakes()
        self._wake_number += 1
        number = f"{name}/{self._wake_number}"
        self._wakes[number] = _HeldWake(self._store.wake(list(values["topics"])))
        return number

    async def _await_wake(self, name: str, values: Mapping[str, Any]) -> bool:
        held = self._wakes.get(values["number"])
        if held is None or not values["number"].startswith(f"{name}/"):
            raise InvalidInput("wake", "this manager does not know it; register again")
        return await held.wait(min(POLL_S, max(0.0, float(values["wait_s"]))))

    async def _close_wake(self, name: str, values: Mapping[str, Any]) -> bool:
        held = self._wakes.get(values["number"])
        if held is not None and values["number"].startswith(f"{name}/"):
            del self._wakes[values["number"]]
            await held.close()
        return True

    def _forget_wakes(self) -> None:
        for number, held in list(self._wakes.items()):
            if held.is_forgotten():
                del self._wakes[number]
                task = asyncio.create_task(held.close())
                self._tasks[task] = None
                task.add_done_callback(lambda done: self._tasks.pop(done, None))


class _HeldWake:
    """A wake of the real store, kept for a caller between its requests."""

    def __init__(self, wake: Wake) -> None:
        self._wake = wake
        self._asked_s = asyncio.get_running_loop().time()
        self._waiting = 0

    async def wait(self, wait_s: float) -> bool:
        self._waiting += 1
        try:
            return await self._wake.wait(wait_s)
        finally:
            self._waiting -= 1
            self._asked_s = asyncio.get_running_loop().time()

    def is_forgotten(self) -> bool:
        return not self._waiting and asyncio.get_running_loop().time() - self._asked_s > _WAKE_KEPT_S

    async def close(self) -> None:
        await self._wake.close()


def _with_key(found: Audited) -> Audited:
    """A row for a repair, whose key of the adapter has lost its type on the wire."""
    key = found.key
    if isinstance(key, dict):
        return msgspec.structs.replace(found, key=msgspec.convert(key, Job))
    return msgspec.structs.replace(found, key=tuple(key)) if isinstance(key, list) else found


def _before(sent: Job, row: Job) -> Job:
    """The row that a change was decided from. At the version that is stored, what the caller sent does not count,
    except that it had not seen the last reports: those write no version. At another one the store refuses it, or
    recognizes it: for that it needs where the caller believed the row to be, and nothing else of what it sent."""
    if _is_at(row, sent):
        if _is_same(row, sent):
            return row
        return msgspec.structs.replace(row, starts=min(row.starts, sent.starts), progress_ms=sent.progress_ms)
    return msgspec.structs.replace(row, **{name: getattr(sent, name) for name in _PLACE})


def _is_at(row: Job, sent: Job) -> bool:
    return (row.version, row.head) == (sent.version, sent.head)


def _is_same(row: Job, sent: Job) -> bool:
    """Whether the caller has also seen the last report."""
    return _is_at(row, sent) and (row.starts, row.progress_ms) == (sent.starts, sent.progress_ms)


def _size(row: Job) -> int:
    return len(row.payload) + len(row.result or b"") + len(row.checkpoint or b"")


_OWN: dict[str, Any] = {
    "hello": StoreService._hello,  # noqa: SLF001 - a table of its own methods
    "put_part": StoreService._put_part,  # noqa: SLF001 - as above
    "get_part": StoreService._get_part,  # noqa: SLF001 - as above
    "open_wake": StoreService._open_wake,  # noqa: SLF001 - as above
    "await_wake": StoreService._await_wake,  # noqa: SLF001 - as above
    "close_wake": StoreService._close_wake,  # noqa: SLF001 - as above
}

__all__ = ["AT_ONCE", "CLAIM_BYTES", "StoreService"]
