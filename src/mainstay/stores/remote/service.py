"""`StoreService`: a manager's side of the store over the bus. It answers calls with the real store.

Each request is checked in this order: cluster and environment, version, role. Role and name of the caller come from the
subject, which the permissions of the bus guarantee; an answer goes to an inbox of the caller and to no other subject.

Requests of one class never hold up those of another. The class is that of the call, whatever its subject says. When
the manager is overloaded or too many of a class wait, `dispatch` and `data` are refused with the time to try again,
`control` never. One caller has a quarter of the places of each class, and a rate of `dispatch` and `data`: what it
sends beyond that is refused before it is read, so that a flood of one caller does not delay the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ...bus import Admission, Bus, BusMessage, MessageClass, Subscription
from ...errors import (
    BusError,
    InvalidInput,
    MainstayError,
    Overloaded,
    PayloadTooLarge,
    RateLimited,
    ReplayRefused,
    RoleRefused,
    StoreUnavailable,
    VersionSkew,
    WrongCluster,
)
from ...model import Job
from ...storage import shown_url
from ..durability import LEVELS
from ..port import CALLS, AnyChange, Audited, ChangeResult, JobStore, Wake
from ..urgent import MOST_URGENT
from .caller_record import CallerRecord, CallerRecords
from .callers import ROLES, caller_of, may_answer
from .node_role import NodeRole, actor_of
from .own_calls import AwaitWake, CloseWake, GetPart, NoArguments, OpenWake, PutPart
from .parts import PartStore
from .store import PART_BYTES, PIECE_BYTES, POLL_S, RemoteHello
from .unanswered_claims import release_of
from .versions import check_versions
from .wire import (
    URGENT,
    ApplyArguments,
    StoreAnswer,
    StoreRequest,
    WireChange,
    class_of,
    encode,
    fault_of,
    read_change,
    resealed,
    wire_call,
)

log = logging.getLogger("mainstay.stores.remote")

GROUP = "managers"
#: requests of a class that are answered at a time; more wait, and then are refused
AT_ONCE: Mapping[MessageClass, int] = {
    MessageClass.CONTROL: 2000,
    MessageClass.DISPATCH: 500,
    MessageClass.DATA: 500,
}
#: requests in all that are under way, with those that wait for a wake
_TASKS = 20_000
#: the part of them that one caller may have
_CALLER_SHARE = 4
_RETRY_AFTER_S = 0.5
#: how long requests may go on when the service stops
_STOP_S = 2.0
_TOO_LARGE = "the answer to its claim would have been too large"
#: bytes of a claim's rows in one answer
CLAIM_BYTES = 4 * 1024 * 1024
#: the largest body
_LARGEST_BYTES = 64 * 1024 * 1024
_LARGEST_PARTS = _LARGEST_BYTES // PIECE_BYTES + 1
#: wakes of one caller and of all, topics of a wake, and requests that wait for one of them
_CALLER_WAKES, _WAKES = 1000, 20_000
_TOPICS, _WAITS = 100, 4
_WAKE_KEPT_S = 60.0
_LONGEST_WORD = 200
_NODES = 10_000
#: rows that are kept for callers, and their bytes; a larger row is read again
_ROWS_KEPT, _ROWS_BYTES, _ROW_BYTES = 20_000, 64 * 1024 * 1024, 64 * 1024
#: between two times that everything that is too old is removed
_TIDY_S = 5.0
#: calls of the port that change nothing: they may come again at any time
_READS = frozenset(
    {
        "audit", "awaited", "check", "due", "events", "find", "get", "limits", "overdue", "queues", "refusals",
        "schedules", "sessions", "stats", "unit_counts",
    }
)  # fmt: skip
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
        admission: Admission | None = None,
        data_bus: Bus | None = None,
    ) -> None:
        """Reads arrive on `data_bus`, a second connection; without one, on `bus`. `admission` is that of the manager,
        for all of its services."""
        self._store = store
        self._bus = bus
        self._data_bus = data_bus or bus
        self._admission = admission or Admission()
        self._manager = manager
        self._cluster = cluster
        self._environment = environment
        self._version = version
        self._allowed_queues = allowed_queues
        self._may_claim = may_claim
        self._on_beat = on_beat
        self._at_once = at_once
        now_s = _loop_s
        self._callers = CallerRecords(now_s=now_s)
        self._nodes: OrderedDict[str, NodeRole] = OrderedDict()
        self._rows: OrderedDict[str, Job] = OrderedDict()
        """rows that were sent to callers: their changes name them without the payload"""
        self._rows_bytes = 0
        self._incoming = PartStore(now_s=now_s)
        self._outgoing = PartStore(now_s=now_s)
        self._wakes: dict[str, _HeldWake] = {}
        self._wake_number = 0
        self._tidied_s = float("-inf")
        self._busy: Counter[MessageClass] = Counter()
        self._subscriptions: list[Subscription[BusMessage]] = []
        self._readers: list[asyncio.Task[None]] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        #: refused requests, by reason: cluster, version, role, input, size, overload, flood, rate, replay, reply, late
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
        subscription = await self._bus_of(MessageClass.of(pattern)).subscribe(pattern, group=group)
        self._subscriptions.append(subscription)
        self._readers.append(asyncio.create_task(self._read(subscription), name=f"mainstay {pattern}"))

    def _bus_of(self, kind: MessageClass) -> Bus:
        return self._data_bus if kind is MessageClass.DATA else self._bus

    async def _read(self, requests: Subscription[BusMessage]) -> None:
        async for message in requests:
            while len(self._tasks) > _TASKS:  # the store stands still: requests wait in the bounded queue of the bus
                await asyncio.wait(list(self._tasks), return_when=asyncio.FIRST_COMPLETED)
            await self._take(message)

    async def _take(self, message: BusMessage) -> None:
        """Begin to answer a request, or refuse it unread: the manager is overloaded, or its caller asks too much."""
        try:
            role, name, method = caller_of(message.subject, "store")
        except InvalidInput:
            self.refused["input"] += 1
            return
        if message.reply is not None and not may_answer(message.reply, role, name):
            self.refused["reply"] += 1
            return
        urgent = role != "node" and message.subject.startswith(f"{MessageClass.CONTROL}.store.")
        kind, caller = class_of(method, urgent=urgent), f"{role}:{name}"
        # a request that waits for a wake is bounded by the number of wakes
        counted = method != "await_wake"
        refusal = "flood"
        try:
            record = self._callers.of(caller)
            if counted and record.busy[kind] >= max(1, self._at_once[kind] // _CALLER_SHARE):
                what = f"{kind} requests of {caller} under way"
                raise self._admission.rate_limited(kind, what, _RETRY_AFTER_S)
            refusal = "overload"
            self._admission.check(kind, caller, _loop_s())
        except Overloaded as error:
            is_rate = isinstance(error, RateLimited) and refusal == "overload"
            self.refused["rate" if is_rate else refusal] += 1
            await self._reply(message, self._failed(error))
            return
        record.busy[kind] += counted
        task = asyncio.create_task(self._answer(message, kind, role, name, method, record))
        self._tasks[task] = None

        def done(ended: asyncio.Task[None]) -> None:
            self._tasks.pop(ended, None)
            record.busy[kind] -= counted

        task.add_done_callback(done)

    async def _answer(
        self, message: BusMessage, kind: MessageClass, role: str, name: str, method: str, record: CallerRecord
    ) -> None:
        began_s = _loop_s()
        self._busy[kind] += 1
        try:
            answer = await self._answer_of(message.body, kind, role, name, method, record)
        finally:
            self._busy[kind] -= 1
        await self._reply(message, msgspec.structs.replace(answer, took=round((_loop_s() - began_s) * 1000)))

    async def _reply(self, message: BusMessage, answer: StoreAnswer) -> None:
        if message.reply is not None:
            with contextlib.suppress(BusError):  # the caller asks again
                bus = self._bus_of(message.message_class)
                await bus.publish(message.reply, msgspec.msgpack.encode(answer))

    def _failed(self, error: MainstayError) -> StoreAnswer:
        clock = self._store.clock
        again = isinstance(error, _NothingDone)
        return StoreAnswer(
            m=self._manager, now=clock.now_ms(), lease=clock.lease_ms(), error=fault_of(error), again=again
        )

    async def _answer_of(
        self, body: bytes, kind: MessageClass, role: str, name: str, method: str, record: CallerRecord
    ) -> StoreAnswer:
        try:
            request = _decode_request(body)
            result = await self._checked(request, role, name, method, kind, record)
            self.answered[method] += 1
            return self._fitted(f"{role}:{name}", request.id, result)
        except MainstayError as error:
            self._count(error, record)
            return self._failed(error)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self.refused["input"] += 1
            return self._failed(InvalidInput("request", f"{method[:40]} cannot be read: {str(error)[:200]}"))
        except Exception as error:
            if record.logs("failure", _loop_s()):
                log.exception("a call failed method=%s caller=%s:%s", method, role, name)
            text = f"manager {self._manager} failed: {type(error).__name__}: {str(error)[:500]}"
            return self._failed(StoreUnavailable(text))

    async def _checked(
        self, request: StoreRequest, role: str, name: str, method: str, kind: MessageClass, record: CallerRecord
    ) -> bytes:
        if (request.c, request.e) != (self._cluster, self._environment):
            raise WrongCluster(f"{self._cluster}/{self._environment}", f"{request.c[:80]}/{request.e[:80]}")
        check_versions(self._version, request.v)
        if role not in ROLES:
            raise RoleRefused(role[:40], name[:80], method[:40], f"the roles are {', '.join(ROLES)}")
        if kind is not MessageClass.CONTROL and self._busy[kind] > self._at_once[kind]:
            raise self._admission.overloaded(kind, f"too many {kind} requests wait at the manager", _RETRY_AFTER_S)
        if len(request.id) > _LONGEST_WORD:
            raise InvalidInput("id", f"the id of a call has at most {_LONGEST_WORD} characters")
        if request.until and self._store.clock.now_ms() > request.until:
            self.refused["late"] += 1
            raise _NothingDone(f"{method[:40]} arrived after its caller had stopped waiting")
        if method in CALLS and method not in _READS:
            record.check_replay(request.id, hash((method, bytes(request.a), request.parts)), _loop_s())
        arguments = self._joined(request, f"{role}:{name}") if request.parts else bytes(request.a)
        return await self._call(role, name, method, kind, arguments, record)

    def _count(self, error: MainstayError, record: CallerRecord) -> None:
        reasons: dict[type[MainstayError], str] = {
            WrongCluster: "cluster",
            VersionSkew: "version",
            RoleRefused: "role",
            PayloadTooLarge: "size",
            Overloaded: "overload",
            ReplayRefused: "replay",
        }
        reason = reasons.get(type(error))
        if reason is not None:
            self.refused[reason] += 1
            if record.logs(reason, _loop_s()):
                log.warning("refused reason=%s: %s", reason, error)

    async def _call(
        self, role: str, name: str, method: str, kind: MessageClass, body: bytes, record: CallerRecord
    ) -> bytes:
        node = self._node(name) if role == "node" else None
        if node is not None:
            node.check_method(method)  # before its arguments are read
        own = _OWN.get(method)
        if own is not None:
            handle, arguments = own
            values = msgspec.msgpack.decode(body, type=arguments)
            if node is not None:
                await node.check(method, msgspec.structs.asdict(values))
            return encode(await handle(self, f"{role}:{name}", values, record))
        if method not in CALLS or method == "close":
            raise RoleRefused(role, name, method[:40], "the store has no such call")
        wire = wire_call(method)
        values = wire.decode(body)
        if method == URGENT and kind is MessageClass.CONTROL and len(values["ids"]) > MOST_URGENT:
            raise InvalidInput("ids", f"a read for a cancel asks for {MOST_URGENT} rows at most")
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
            while len(self._nodes) > _NODES:
                self._nodes.popitem(last=False)  # it is made again from the store
        return found

    # calls of the port --------------------------------------------------------------------------

    async def _run(self, method: str, values: dict[str, Any], *, node: NodeRole | None, name: str) -> Any:
        if method == "apply":
            return await self._apply(ApplyArguments(**values), node)
        if method == "claim":
            # an engine can be heard although its node is not: what it gets would be taken back again and again
            return await self._claim(values) if node is None or self._may_claim(name) else []
        if method in ("insert", "tick"):
            actor = None if node is None else actor_of(name)
            values["jobs"] = [resealed(new, self._store.chain, actor=actor) for new in values["jobs"]]
        for report in values.get("reports", ()):
            kept = self._rows.get(report.job_id)
            if kept is not None and kept.session == report.session:
                self._drop(report.job_id)  # a report changes the row without a new version
        if method == "mend":
            values["found"] = _with_key(values["found"])
        result = await getattr(self._store, method)(**values)
        if method == "insert" and node is not None:
            # a job that was found by its unique key may be of another caller
            node.submitted([each.id for each in result if each.created or each.by == "key"])
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

    async def _apply(self, arguments: ApplyArguments, node: NodeRole | None) -> list[ChangeResult]:
        made = await self._apply_once(arguments, node)
        again = [place for place, result in enumerate(made) if self._was_old(arguments.changes[place], result)]
        if not again:
            return made
        # another manager took a report of the row, which changes it without a new version. The rows are read now
        if arguments.together:
            return await self._apply_once(arguments, node)
        changes = [arguments.changes[place] for place in again]
        second = await self._apply_once(msgspec.structs.replace(arguments, changes=changes), node)
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

    async def _apply_once(self, arguments: ApplyArguments, node: NodeRole | None) -> list[ChangeResult]:
        rows = await self._rows_of([wire.before for wire in arguments.changes])
        if node is not None:
            for wire in arguments.changes:
                if (held := rows.get(wire.before.id)) is not None:
                    await node.check_change(wire, held)
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
                # a node speaks as its session, whatever it says
                actor = None if node is None else change.actor
                spawn = tuple(resealed(new, self._store.chain, actor=actor) for new in change.spawn)
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
                    self._drop(result.job.id)
        return made if node is None else [node.visible(result) for result in made]

    async def _rows_of(self, sent: Sequence[Job]) -> dict[str, Job]:
        """The stored rows of changes; a row that was kept counts if the caller saw the same."""
        found = {row.id: kept for row in sent if (kept := self._rows.get(row.id)) is not None and _is_same(kept, row)}
        unknown = [row.id for row in sent if row.id not in found]
        if unknown:
            found |= {row.id: row for row in await self._store.get(unknown) if row is not None}
        return found

    def _keep(self, rows: Any) -> None:
        for row in rows:
            self._drop(row.id)
            if _bytes_of(row) <= _ROW_BYTES:
                self._rows[row.id] = row
                self._rows_bytes += _bytes_of(row)
        while len(self._rows) > _ROWS_KEPT or self._rows_bytes > _ROWS_BYTES:
            self._drop(next(iter(self._rows)))

    def _drop(self, job_id: str) -> None:
        row = self._rows.pop(job_id, None)
        if row is not None:
            self._rows_bytes -= _bytes_of(row)

    # calls of the wire --------------------------------------------------------------------------

    async def _hello(self, caller: str, values: NoArguments, record: CallerRecord) -> RemoteHello:
        del caller, values, record
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

    async def _put_part(self, caller: str, part: PutPart, record: CallerRecord) -> bool:
        del record
        self._tidy()
        if len(part.call) > _LONGEST_WORD:
            raise InvalidInput("call", f"the id of a call has at most {_LONGEST_WORD} characters")
        if not 0 <= part.number < part.of <= _LARGEST_PARTS or len(part.data) > PART_BYTES:
            raise PayloadTooLarge(
                "body", f"{part.of} parts of {len(part.data)} bytes; at most {_LARGEST_BYTES} bytes are accepted"
            )
        self._incoming.put(caller, part.call, part.number, part.data)
        return True

    def _joined(self, request: StoreRequest, caller: str) -> bytes:
        if not 0 < request.parts <= _LARGEST_PARTS:
            raise PayloadTooLarge("body", f"{request.parts} parts; at most {_LARGEST_BYTES} bytes are accepted")
        parts = self._incoming.take(caller, request.id)
        for number in range(request.parts):
            if number not in parts:
                raise _NothingDone(f"part {number} of {request.parts} is missing; it is sent again")
        return b"".join(parts[number] for number in range(request.parts))

    def _fitted(self, caller: str, call_id: str, body: bytes) -> StoreAnswer:
        clock = self._store.clock
        answer = StoreAnswer(m=self._manager, now=clock.now_ms(), lease=clock.lease_ms())
        if len(body) <= PART_BYTES:
            return msgspec.structs.replace(answer, ok=msgspec.Raw(body))
        self._tidy()
        pieces = [body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES)]
        for number, piece in enumerate(pieces):
            self._outgoing.put(caller, call_id, number, piece)
        return msgspec.structs.replace(answer, parts=len(pieces))

    async def _get_part(self, caller: str, wanted: GetPart, record: CallerRecord) -> bytes:
        del record
        piece = self._outgoing.get(caller, wanted.call, wanted.number)
        if piece is None:
            raise _NothingDone("the parts of this answer are no longer kept; the call is sent again")
        return piece

    async def _open_wake(self, caller: str, wanted: OpenWake, record: CallerRecord) -> str:
        self._tidy()
        if len(wanted.topics) > _TOPICS or any(len(topic) > _LONGEST_WORD for topic in wanted.topics):
            raise InvalidInput("topics", f"a wake has at most {_TOPICS} topics of {_LONGEST_WORD} characters")
        if len(record.wakes) >= _CALLER_WAKES or len(self._wakes) >= _WAKES:
            raise Overloaded("too many wakes are open at the manager", _RETRY_AFTER_S)
        self._wake_number += 1
        number = f"{caller}/{self._wake_number}"
        self._wakes[number] = _HeldWake(self._store.wake(list(wanted.topics)), record)
        record.wakes[number] = None
        return number

    async def _await_wake(self, caller: str, wanted: AwaitWake, record: CallerRecord) -> bool:
        held = self._wakes.get(wanted.number)
        if held is None or wanted.number not in record.wakes:
            raise InvalidInput("wake", "this manager does not know it; register again")
        if held.waiting >= _WAITS:
            raise Overloaded(f"too many requests of {caller} wait for one wake", _RETRY_AFTER_S)
        return await held.wait(min(POLL_S, max(0.0, wanted.wait_s)))

    async def _close_wake(self, caller: str, wanted: CloseWake, record: CallerRecord) -> bool:
        del caller
        if wanted.number in record.wakes:
            await self._forget_wake(wanted.number)
        return True

    async def _forget_wake(self, number: str) -> None:
        held = self._wakes.pop(number, None)
        if held is not None:
            held.record.wakes.pop(number, None)
            await held.close()

    def _tidy(self) -> None:
        """Remove what no caller has asked for in a while."""
        now_s = _loop_s()
        if now_s - self._tidied_s < _TIDY_S:
            return
        self._tidied_s = now_s
        self._incoming.forget_old()
        self._outgoing.forget_old()
        for number in [number for number, held in self._wakes.items() if held.is_forgotten()]:
            task = asyncio.create_task(self._forget_wake(number))
            self._tasks[task] = None
            task.add_done_callback(lambda done: self._tasks.pop(done, None))


class _HeldWake:
    """A wake of the real store, kept for a caller between its requests."""

    def __init__(self, wake: Wake, record: CallerRecord) -> None:
        self._wake = wake
        self.record = record
        self.waiting = 0
        """requests that wait for it"""
        self._asked_s = _loop_s()

    async def wait(self, wait_s: float) -> bool:
        self.waiting += 1
        try:
            return await self._wake.wait(wait_s)
        finally:
            self.waiting -= 1
            self._asked_s = _loop_s()

    def is_forgotten(self) -> bool:
        return not self.waiting and _loop_s() - self._asked_s > _WAKE_KEPT_S

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


def _bytes_of(row: Job) -> int:
    return len(row.payload) + len(row.checkpoint or b"") + len(row.result or b"")


def _loop_s() -> float:
    return asyncio.get_running_loop().time()


_OWN: dict[str, Any] = {
    "hello": (StoreService._hello, NoArguments),  # noqa: SLF001 - a table of its own methods
    "put_part": (StoreService._put_part, PutPart),  # noqa: SLF001 - as above
    "get_part": (StoreService._get_part, GetPart),  # noqa: SLF001 - as above
    "open_wake": (StoreService._open_wake, OpenWake),  # noqa: SLF001 - as above
    "await_wake": (StoreService._await_wake, AwaitWake),  # noqa: SLF001 - as above
    "close_wake": (StoreService._close_wake, CloseWake),  # noqa: SLF001 - as above
}

__all__ = ["AT_ONCE", "CLAIM_BYTES", "StoreService"]
