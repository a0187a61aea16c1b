"""`RemoteStore`: the store port over the bus. Managers answer with the real store.

A call whose answer was lost is sent again, with the same id, to whichever manager takes it: every call of the port can
be repeated. The second answer may say that nothing was left to do, as that of `tick` or `drop_schedule`; the result of
a change is marked as `resent`. After `answer_s` it raises `StoreUnavailable`, as any store does whose server is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Self, cast

import msgspec

from ...bus import Bus, MessageClass
from ...clock import Clock
from ...errors import (
    BusError,
    InvalidInput,
    MainstayError,
    NoResponders,
    Overloaded,
    RateLimited,
    RequestTimeout,
    StoreClosed,
    StoreUnavailable,
)
from ...lifecycle import Chain
from ...model import Job, Leadership
from ..durability import LEVELS, Durability
from ..pages import check_page
from ..port import CALLS, AnyChange, ChangeResult, Deletion, JobStore, Observer, Page, Query, Wake
from ..proxy import StoreMethod, StoreProxy
from ..server_clock import ServerClock, steady_ms
from ..urgent import MOST_URGENT, reads_are_urgent
from .unanswered_claims import UnansweredClaims, release_of
from .wire import DISPATCH, StoreAnswer, StoreRequest, class_of, encode, error_of, wire_call, wire_change

#: bytes in one message; a larger body goes in parts
PART_BYTES = 256 * 1024
#: bytes of one part, so that it fits into a message with its envelope
PIECE_BYTES = PART_BYTES - 1024
#: how long a call is repeated
ANSWER_S = 5.0
#: how long one try waits for its answer
_TRY_S = 2.5
_PAUSE_S = 0.05
#: a call that managers refuse because they are busy is sent again this often, each time after the pause that they ask
#: for and not sooner than this
_REFUSALS, _REFUSED_S = 3, 0.1
#: how much later than at the end of its try a request may still be carried out: clocks differ a little
_LATE_S = 0.5
#: calls that walk over the whole store: how long they may take in all. Each try waits twice as long as the one before
_WALKS = frozenset({"check", "audit", "trim"})
_WALKS_S = 300.0
#: calls of one class under way; a node has several clients
_UNDER_WAY = 32
#: how long one request waits for a wake, at most and if its caller asks again and again for less: each one is two
#: messages, and one that waits at a manager that is lost hears nothing
POLL_S = 10.0
_LASTS_S = 3.5
_decode_answer = msgspec.msgpack.Decoder(StoreAnswer).decode


class _SendAgain(Exception):
    """A manager has done nothing, and asks for the same call again."""


class RemoteHello(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager says about its store."""

    url: str
    """without secrets"""
    durability: str
    levels: dict[str, str]
    """by durability level: what an insert survives; a level that is missing cannot be had"""
    refused: dict[str, str] = {}
    """by level that cannot be had: why"""


class RemoteCaller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks managers."""

    role: str
    name: str
    cluster: str
    environment: str


class ManagerClock:
    """The time of the store, as the answers of managers tell it. It is a `Clock`."""

    def __init__(self, steady: Callable[[], float] = steady_ms) -> None:
        self.steady = steady
        self._now, self._lease = ServerClock(steady), ServerClock(steady)

    def heard(self, answer: StoreAnswer, *, sent: float) -> None:
        """Take a reading. The time that the request spent at the manager says nothing about the way there and back: a
        request for a wake is there for seconds.

        All managers tell the time of one store, so the best reading counts, whichever manager it is from. One that
        contradicts it takes its place."""
        received = self.steady()
        arrived = min(received, sent + answer.took)
        self._now.heard(answer.now, sent=arrived, received=received)
        self._lease.heard(answer.lease, sent=arrived, received=received)

    def now_ms(self) -> int:
        return self._now.now_ms()

    def lease_ms(self) -> int:
        return self._lease.now_ms()


class RemoteStore(StoreProxy):
    """One client of a store behind managers. It is a `JobStore`; `open` makes it."""

    def __init__(
        self,
        bus: Bus,
        *,
        role: str,
        name: str,
        cluster: str,
        environment: str = "default",
        version: str,
        rng: random.Random | None = None,
        clock: Clock | None = None,
        steady: Callable[[], float] = steady_ms,
        answer_s: float = ANSWER_S,
        url: str = "",
        owns_bus: bool = False,
    ) -> None:
        super().__init__(cast("JobStore", None))  # there is no store in this process: every call is replaced
        self._bus = bus
        self._role = role
        self._name = name
        self._envelope = StoreRequest(v=version, c=cluster, e=environment, id="")
        self._rng = rng or random.Random()
        self._answer_s = answer_s
        self._owns_bus = owns_bus
        self._hello: RemoteHello | None = None
        self._manager = ""
        self._closed = False
        self._places = asyncio.Semaphore(_UNDER_WAY), asyncio.Semaphore(_UNDER_WAY)
        """for reads, and for submits and claims"""
        self._held_until_s: dict[MessageClass, float] = {}
        """until when calls of a class wait, because this caller has made too many"""
        self._opening: dict[asyncio.Task[None], None] = {}
        """wakes that are being registered"""
        self._releasing: dict[asyncio.Task[None], None] = {}
        """claims that are being given back"""
        self._claims = UnansweredClaims()
        self._observed: Observer | None = None
        self.url = url or f"remote+nats:///?cluster={cluster}&role={role}&name={name}"
        self._times = ManagerClock(steady)
        self.clock = clock or self._times
        self.chain = Chain(None)
        self.durability = ""
        self.managed = role == "node"
        self._replace(
            self._method_of,
            [name for name in CALLS if name not in ("close", "apply", "claim", "delete", "find", "get")],
        )

    async def open(self) -> RemoteStore:
        """Ask a manager about its store: the first call."""
        self._hello = msgspec.msgpack.decode(await self._call("hello", b"\x80"), type=RemoteHello)
        self.durability = self._hello.durability
        return self

    @property
    def bus(self) -> Bus:
        """The connection that its calls go over."""
        return self._bus

    @property
    def caller(self) -> RemoteCaller:
        """Who its calls are from."""
        return RemoteCaller(role=self._role, name=self._name, cluster=self._envelope.c, environment=self._envelope.e)

    @property
    def observer(self) -> Observer | None:
        """Not supported: the commits happen in a manager."""
        return self._observed

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        self._observed = observer

    def durability_of(self, level: Durability) -> str:
        hello = self._hello
        if hello is None or level not in LEVELS:
            raise InvalidInput("durability", f"{level!r} is not one of {', '.join(LEVELS)}")
        if level in hello.refused:
            raise InvalidInput("durability", hello.refused[level])
        return hello.levels[level]

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for task in (*self._opening, *self._releasing):
            task.cancel()
        if self._owns_bus:
            await self._bus.close()

    async def claim(self, queues: Sequence[str], session: str, n: int, *, mark: str | None = None) -> list[Job]:
        wire = wire_call("claim")
        if mark is not None:
            made = await self._call("claim", wire.encode((queues, session, n), {"mark": mark}))
            claimed: list[Job] = wire.result.decode(made)
            return claimed
        # a mark of ours makes the call repeatable: within this call, and by the next one if no answer came at all
        own = self._claims.mark_for(session, n) or f"{self._rng.getrandbits(64):016x}"
        body = wire.encode((queues, session, n), {"mark": own})
        try:
            found: list[Job] = wire.result.decode(await self._call("claim", body))
        except StoreUnavailable:
            self._claims.add(session, n, own)
            raise
        except asyncio.CancelledError:
            if not self._closed:
                self._give_back(body)
            raise
        return found

    def _give_back(self, claim: bytes) -> None:
        """Release the rows of a claim whose caller was cancelled: they are known by its mark."""

        async def give_back() -> None:
            with contextlib.suppress(MainstayError):  # the audit of the engine finds them, or the end of its session
                rows: list[Job] = wire_call("claim").result.decode(await self._call("claim", claim))
                now_ms = self.clock.now_ms()
                await self.apply([release_of(row, reason="its claimer was cancelled", at_ms=now_ms) for row in rows])

        task = asyncio.create_task(give_back(), name="mainstay remote release")
        self._releasing[task] = None
        task.add_done_callback(lambda done: self._releasing.pop(done, None))

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 100) -> Page:
        check_page(cursor, limit)  # before the wire refuses a wrong type in other words
        wire = wire_call("find")
        page: Page = wire.result.decode(
            await self._call("find", wire.encode((query,), {"cursor": cursor, "limit": limit}))
        )
        return page

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        wire = wire_call("get")
        most = MOST_URGENT if reads_are_urgent() else max(1, len(ids))
        rows: list[Job | None] = []
        for start in range(0, max(1, len(ids)), most):
            rows += wire.result.decode(await self._call("get", wire.encode((ids[start : start + most],), {})))
        return rows

    async def apply(
        self, changes: Sequence[AnyChange], *, lead: Leadership | None = None, together: bool = False
    ) -> list[ChangeResult]:
        wire = wire_call("apply")
        body = encode({"changes": [wire_change(change) for change in changes], "lead": lead, "together": together})
        answer, resent = await self._answer_to("apply", body)
        results: list[ChangeResult] = wire.result.decode(answer)
        return [msgspec.structs.replace(result, resent=True) for result in results] if resent else results

    async def delete(
        self, ids: Sequence[str], *, actor: str, reason: str, versions: Mapping[str, int] | None = None
    ) -> list[Deletion]:
        wire = wire_call("delete")
        body = wire.encode((ids,), {"actor": actor, "reason": reason, "versions": versions})
        answer, resent = await self._answer_to("delete", body)
        results: list[Deletion] = wire.result.decode(answer)
        if not resent:
            return results
        return [
            "deleted" if result == "missing" and await self._is_deleted(job_id, actor, reason) else result
            for job_id, result in zip(ids, results, strict=True)
        ]

    async def _is_deleted(self, job_id: str, actor: str, reason: str) -> bool:
        """Whether the tombstone of a job says that it was deleted by this actor for this reason."""
        last = (await self.events(job_id))[-1:]
        return [(event.flag, event.actor, event.reason) for event in last] == [("tombstone", actor, reason)]

    def wake(self, topics: Sequence[str]) -> Wake:
        return RemoteWake(self, topics)

    # the wire -----------------------------------------------------------------------------------

    def _method_of(self, name: str) -> StoreMethod:
        wire = wire_call(name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return wire.result.decode(await self._call(name, wire.encode(args, kwargs)))

        return call

    async def _call(self, method: str, body: bytes) -> bytes:
        """The encoded result of a call, sent again until a manager answers."""
        return (await self._answer_to(method, body))[0]

    async def _answer_to(self, method: str, body: bytes) -> tuple[bytes, bool]:
        """As `_call`; and whether an answer was lost, so that a manager may have made the call twice. Of submits,
        claims and reads only some are under way at a time: a manager refuses the rest of a caller."""
        if _class_of(method) is MessageClass.CONTROL:
            return await self._answered(method, body)
        async with self._places[method in DISPATCH]:
            loop = asyncio.get_running_loop()
            if (held_s := self._held_until_s.get(_class_of(method), 0.0) - loop.time()) > 0:
                await asyncio.sleep(held_s)
            return await self._answered(method, body)

    async def _answered(self, method: str, body: bytes) -> tuple[bytes, bool]:
        if self._closed:
            raise StoreClosed("the store was closed; open it again")
        if self._opening:
            await asyncio.wait(list(self._opening))
        call_id = f"{self._rng.getrandbits(96):024x}"
        loop = asyncio.get_running_loop()
        answer_s = max(self._answer_s, _WALKS_S) if method in _WALKS else self._answer_s
        try_s = _TRY_S
        ends_s = loop.time() + answer_s
        resent, dated, refusals = False, self._hello is not None, 0
        while True:
            left_s = ends_s - loop.time()
            try:
                return await self._try(method, call_id, body, min(try_s, max(0.05, left_s)), dated=dated), resent
            except _SendAgain:
                dated = False  # heard in time, so it was not late: the clocks disagree
                if loop.time() < ends_s:
                    continue
                raise StoreUnavailable(f"{method} was not accepted within {answer_s:g} s") from None
            except (BusError, Overloaded) as error:
                if isinstance(error, RequestTimeout):
                    resent = True
                    try_s *= 2 if method in _WALKS else 1
                refusals += isinstance(error, Overloaded)
                pause_s = self._pause_after(error, _class_of(method))
                if refusals > _REFUSALS or loop.time() + pause_s >= ends_s or self._closed:
                    if isinstance(error, Overloaded) and not resent:
                        raise
                    what = "no manager is there" if isinstance(error, NoResponders) else str(error)
                    raise StoreUnavailable(f"{method} got no answer within {answer_s:g} s: {what}") from None
            await asyncio.sleep(pause_s)

    def _pause_after(self, error: BusError | Overloaded, kind: MessageClass) -> float:
        """How long to wait before the next try."""
        if not isinstance(error, Overloaded):
            return _PAUSE_S * self._rng.uniform(0.5, 1.5)
        pause_s = max(_REFUSED_S, error.retry_after_s)
        if not isinstance(error, RateLimited) or kind is MessageClass.CONTROL:
            return pause_s * self._rng.uniform(1.0, 1.5)
        # the bucket is that of this caller: all of its calls wait, and then there are tokens for the refused ones
        now_s = asyncio.get_running_loop().time()
        held_s = self._held_until_s[kind] = max(self._held_until_s.get(kind, 0.0), now_s + pause_s)
        return held_s - now_s

    async def _try(self, method: str, call_id: str, body: bytes, timeout_s: float, *, dated: bool) -> bytes:
        until = self.clock.now_ms() + round((timeout_s + _LATE_S) * 1000) if dated else 0
        if len(body) > PART_BYTES:
            return await self._try_in_parts(method, call_id, body, timeout_s, until)
        request = msgspec.structs.replace(self._request(call_id, body), until=until)
        answer = await self.ask(self.subject(method), request, timeout_s)
        return await self._result(answer, call_id, timeout_s)

    async def _try_in_parts(self, method: str, call_id: str, body: bytes, timeout_s: float, until: int) -> bytes:
        """Send the parts to one manager, then the call."""
        if not self._manager:
            await self.open()
        at = self._manager
        pieces = [body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES)]
        for number, piece in enumerate(pieces):
            part = encode({"call": call_id, "number": number, "of": len(pieces), "data": piece})
            request = self._request(f"{call_id}.{number}", part)
            try:
                answer = await self.ask(self.subject("put_part", at=at), request, timeout_s)
            except BusError:
                self._manager = ""  # it may be gone: the next try asks which one is there
                raise
            if answer.error is not None:
                raise error_of(answer.error)
        until += round(timeout_s * 1000) * len(pieces) if until else 0
        request = msgspec.structs.replace(self._request(call_id), parts=len(pieces), until=until)
        answer = await self.ask(self.subject(method, at=at), request, timeout_s)
        return await self._result(answer, call_id, timeout_s)

    async def _result(self, answer: StoreAnswer, call_id: str, timeout_s: float) -> bytes:
        if answer.error is not None:
            raise _SendAgain(answer.error.message) if answer.again else error_of(answer.error)
        if not answer.parts:
            return bytes(answer.ok)
        pieces: list[bytes] = []
        for number in range(answer.parts):
            wanted = encode({"call": call_id, "number": number})
            request = self._request(f"{call_id}.r{number}", wanted)
            part = await self.ask(self.subject("get_part", at=answer.m), request, timeout_s)
            if part.error is not None:
                raise _SendAgain(part.error.message) if part.again else error_of(part.error)
            pieces.append(msgspec.msgpack.decode(part.ok, type=bytes))
        return b"".join(pieces)

    async def ask(self, subject: str, request: StoreRequest, timeout_s: float) -> StoreAnswer:
        """One request and its answer, whose time sets the clock."""
        sent = self._times.steady()
        answer = _decode_answer(await self._bus.request(subject, msgspec.msgpack.encode(request), timeout_s))
        if answer.now:
            self._times.heard(answer, sent=sent)
        self._manager = answer.m
        return answer

    def _request(self, call_id: str, body: bytes = b"\x80") -> StoreRequest:
        return msgspec.structs.replace(self._envelope, id=call_id, a=msgspec.Raw(body))

    def envelope(self, body: bytes) -> StoreRequest:
        """A request outside of the port, for a wake."""
        return self._request(f"{self._rng.getrandbits(96):024x}", body)

    async def tell(self, subject: str, body: bytes) -> None:
        """A message without an answer."""
        await self._bus.publish(subject, msgspec.msgpack.encode(self.envelope(body)))

    def opening(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have a wake registered before the next call of this store is sent."""
        task = asyncio.create_task(work, name="mainstay remote wake")
        self._opening[task] = None
        task.add_done_callback(self._opened)
        return task

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening.pop(task, None)
        if not task.cancelled():
            task.exception()  # the wait that follows raises it

    def subject(self, method: str, *, at: str = "") -> str:
        if at:
            return f"control.at.{at}.store.{self._role}.{self._name}.{method}"
        return f"{_class_of(method)}.store.{self._role}.{self._name}.{method}"


def _class_of(method: str) -> MessageClass:
    return class_of(method, urgent=reads_are_urgent())


class RemoteWake:
    """A wake that a manager holds. It is a `Wake`.

    It registers when it is made; later calls of its store wait for that, so that a read comes after it. When its
    manager is lost, it registers at another one and wakes: what happened in between is found by the read that follows.
    """

    def __init__(self, store: RemoteStore, topics: Sequence[str]) -> None:
        self._store = store
        self._topics = tuple(topics)
        self._at = ""
        self._number = ""
        self._opening: asyncio.Task[None] | None = store.opening(self._open())
        self._asking: asyncio.Task[bool | None] | None = None
        """the request that waits at the manager. It outlives a wait that is cancelled or over: the manager gives each
        wake to one request, and one that nothing reads would swallow it"""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def wait(self, timeout_s: float) -> bool:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + timeout_s
        if not await self._is_open():
            # no manager takes it: the caller reads without a wake
            await asyncio.sleep(max(0.0, ends_s - loop.time()))
            return False
        while True:
            left_s = max(0.0, ends_s - loop.time())
            asking = self._asking = self._asking or asyncio.create_task(
                self._await_wake(min(POLL_S, max(_LASTS_S, left_s)))
            )
            done, _ = await asyncio.wait([asking], timeout=left_s)
            if not done:
                return False
            self._asking = None
            woken = asking.result()
            if woken is None:
                self._opening = self._store.opening(self._open())
                return True
            if woken or loop.time() >= ends_s:
                return woken

    async def close(self) -> None:
        opening, self._opening = self._opening, None
        asking, self._asking = self._asking, None
        for task in (opening, asking):
            if task is not None and not task.done():
                task.cancel()
        if asking is not None:
            await asyncio.wait([asking])
        number, self._number = self._number, ""
        if number:
            with contextlib.suppress(BusError):
                await self._store.tell(self._store.subject("close_wake", at=self._at), encode({"number": number}))

    async def _is_open(self) -> bool:
        """Whether a manager holds it; tries again if the last try failed."""
        if not self._number and (self._opening is None or self._opening.done()):
            self._opening = self._store.opening(self._open())
        if self._opening is not None and not self._opening.done():
            await asyncio.wait([self._opening])
        if self._opening is not None and not self._opening.cancelled():
            self._opening.result()
        return bool(self._number)

    async def _open(self) -> None:
        self._number = ""
        request = self._store.envelope(encode({"topics": self._topics}))
        try:
            answer = await self._store.ask(self._store.subject("open_wake"), request, _TRY_S)
        except BusError:
            return
        if answer.error is not None:
            error = error_of(answer.error)
            if isinstance(error, Overloaded):
                return  # this caller has enough wakes: it reads without one
            raise error
        self._at, self._number = answer.m, msgspec.msgpack.decode(answer.ok, type=str)

    async def _await_wake(self, wait_s: float) -> bool | None:
        """None: the manager is gone, or has forgotten the wake."""
        request = self._store.envelope(encode({"number": self._number, "wait_s": wait_s}))
        try:
            answer = await self._store.ask(self._store.subject("await_wake", at=self._at), request, wait_s + 1.0)
        except BusError:
            return None
        return None if answer.error is not None else msgspec.msgpack.decode(answer.ok, type=bool)


class ManagerConnection(NamedTuple):
    """The way to the managers in front of a store, for requests beside those of the store."""

    bus: Bus
    """closed with the store"""
    caller: RemoteCaller


def manager_connection(store: JobStore) -> ManagerConnection | None:
    """The way to the managers in front of a store, also behind wrappers; None: it is not behind managers."""
    bus, caller = getattr(store, "bus", None), getattr(store, "caller", None)
    return ManagerConnection(bus, caller) if isinstance(caller, RemoteCaller) and bus is not None else None


__all__ = [
    "ANSWER_S",
    "PART_BYTES",
    "ManagerConnection",
    "RemoteHello",
    "RemoteStore",
    "RemoteWake",
    "manager_connection",
]
