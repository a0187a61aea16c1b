"""What operators ask managers over the bus: the status of the cluster, its journal, and to drain a node."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import msgspec

from ..bus import MAX_BODY_BYTES, Admission, Bus, BusMessage, MessageClass, Subscription
from ..errors import (
    BusError,
    InvalidInput,
    MainstayError,
    NoResponders,
    Overloaded,
    PayloadTooLarge,
    RateLimited,
    RequestTimeout,
    RoleRefused,
    VersionSkew,
    WrongCluster,
)
from ..stores.remote import (
    MAINSTAY_VERSION,
    StoreAnswer,
    StoreRequest,
    caller_of,
    check_versions,
    error_of,
    fault_of,
    may_answer,
)
from .core_view import ClusterCores
from .journal_merge import merge_journals
from .output_messages import JobOutput, JobOutputQuery, OutputChunk
from .status import ClusterStatus, JournalEntry
from .status_pages import StatusPage, status_page

log = logging.getLogger("mainstay.cluster")

_PATTERN = "data.cluster.>"
_ROLES = ("operator", "manager")
#: requests that are answered at a time
_AT_ONCE = 64
#: how long a manager may take to answer, try by try: the first one that was asked may just have ended
_ANSWER_S = (1.5, 4.0, 4.0)
#: pauses between tries: a random part of this, which doubles each time up to the longest
_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
#: what an operator needs to see and do while managers are overloaded
_CONTROL = frozenset({"status", "drain"})
#: how long another manager may take for its part of the journal
_PEER_S = 2.0
#: entries in one answer
MOST_ENTRIES = 1000


class ClusterView(Protocol):
    """What a manager shows of its cluster."""

    async def status(self) -> ClusterStatus: ...

    async def cores(self) -> ClusterCores: ...

    async def drain(self, node: str, by: str) -> bool:
        """False: no such node."""
        ...

    def peers(self) -> list[str]:
        """The other managers."""
        ...

    def journal_entries(
        self, *, from_ms: int | None = None, until_ms: int | None = None, most: int = 50
    ) -> list[JournalEntry]: ...

    async def output(self, query: JobOutputQuery) -> JobOutput: ...


class JournalRange(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries of the journal: at or after `from_ms`, before `until_ms`, the newest `most`."""

    from_ms: int | None = None
    until_ms: int | None = None
    most: int = 50


class ClusterService:
    """Answers `data.cluster.ROLE.NAME.METHOD`, and other managers that ask for its part of the journal. A service:
    `start`, then `stop`."""

    def __init__(
        self,
        bus: Bus,
        view: ClusterView,
        *,
        manager: str,
        cluster: str,
        environment: str,
        version: str = MAINSTAY_VERSION,
        admission: Admission | None = None,
        data_bus: Bus | None = None,
    ) -> None:
        """Requests of operators arrive on `data_bus`, a second connection; without one, on `bus`. `admission` is that
        of the manager, for all of its services."""
        self._version = version
        self._bus = bus
        self._data_bus = data_bus or bus
        self._admission = admission or Admission()
        self._view = view
        self._manager = manager
        self._cluster = cluster
        self._environment = environment
        self._envelope = StoreRequest(v=version, c=cluster, e=environment, id="journal")
        self._subscriptions: list[Subscription[BusMessage]] = []
        self._readers: list[asyncio.Task[None]] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        #: refused requests, by reason
        self.refused: Counter[str] = Counter()

    async def start(self) -> None:
        for bus, pattern, group, serve in (
            (self._data_bus, _PATTERN, "managers", self._serve),
            (self._bus, f"control.manager.{self._manager}.journal", None, self._serve_peer),
        ):
            subscription = await bus.subscribe(pattern, group=group)
            self._subscriptions.append(subscription)
            self._readers.append(asyncio.create_task(self._run(subscription, serve), name=f"mainstay {pattern}"))

    async def stop(self) -> None:
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            await subscription.close()
        readers, self._readers = self._readers, []
        if readers:
            await asyncio.wait(readers)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(
        self, requests: Subscription[BusMessage], serve: Callable[[BusMessage], Coroutine[None, None, None]]
    ) -> None:
        """One task for each request: an operator who asks a node that does not answer delays no other."""
        async for message in requests:
            while len(self._tasks) >= _AT_ONCE:
                await asyncio.wait(list(self._tasks), return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(serve(message))
            self._tasks[task] = None
            task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _serve(self, message: BusMessage) -> None:
        try:
            role, name, method = caller_of(message.subject, "cluster")
        except InvalidInput:
            self.refused["input"] += 1
            return
        if not may_answer(message.reply, role, name):
            self.refused["reply"] += 1
            return
        assert message.reply is not None
        try:
            body = msgspec.msgpack.encode(await self._answer(message, role, name, method))
            if len(body) > MAX_BODY_BYTES:
                error = PayloadTooLarge(method, f"the answer has {len(body)} bytes; ask for less")
                body = msgspec.msgpack.encode(StoreAnswer(m=self._manager, error=fault_of(error)))
            with contextlib.suppress(BusError):  # the caller asks again
                await self._data_bus.publish(message.reply, body)
        except Exception:
            log.exception("a request failed method=%s caller=%s:%s", method, role, name)

    async def _serve_peer(self, message: BusMessage) -> None:
        if message.reply is not None:
            with contextlib.suppress(BusError):  # the journal of the others is shown
                await self._bus.publish(message.reply, msgspec.msgpack.encode(self._answer_peer(message)))

    def _answer_peer(self, message: BusMessage) -> StoreAnswer:
        """Another manager collects the journal."""
        try:
            request = msgspec.msgpack.decode(message.body, type=StoreRequest)
            if (request.c, request.e) != (self._cluster, self._environment):
                raise WrongCluster(f"{self._cluster}/{self._environment}", f"{request.c[:80]}/{request.e[:80]}")
            entries = self._own_journal(msgspec.msgpack.decode(request.a, type=JournalRange))
            return StoreAnswer(m=self._manager, ok=msgspec.Raw(msgspec.msgpack.encode(entries)))
        except MainstayError as error:
            return StoreAnswer(m=self._manager, error=fault_of(error))
        except msgspec.MsgspecError as error:
            return StoreAnswer(m=self._manager, error=fault_of(InvalidInput("request", f"cannot be read: {error}")))
        except Exception as error:  # the next request must be answered
            log.exception("its part of the journal cannot be read")
            return self._failed(error)

    async def _answer(self, message: BusMessage, role: str, name: str, method: str) -> StoreAnswer:
        try:
            self._admit(method, f"{role}:{name}")
            request = msgspec.msgpack.decode(message.body, type=StoreRequest)
            if (request.c, request.e) != (self._cluster, self._environment):
                self.refused["cluster"] += 1
                raise WrongCluster(f"{self._cluster}/{self._environment}", f"{request.c[:80]}/{request.e[:80]}")
            try:
                check_versions(self._version, request.v)
            except VersionSkew:
                self.refused["version"] += 1
                raise
            if role not in _ROLES:
                self.refused["role"] += 1
                raise RoleRefused(role[:40], name[:80], method[:40], "only operators and managers may")
            value = await self._call(method, name, request.a)
            return StoreAnswer(m=self._manager, ok=msgspec.Raw(msgspec.msgpack.encode(value)))
        except MainstayError as error:
            return StoreAnswer(m=self._manager, error=fault_of(error))
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            self.refused["input"] += 1
            return StoreAnswer(m=self._manager, error=fault_of(InvalidInput("request", f"cannot be read: {error}")))
        except Exception as error:  # the next request must be answered
            log.exception("a request failed method=%s caller=%s:%s", method, role, name)
            return self._failed(error)

    def _admit(self, method: str, caller: str) -> None:
        kind = MessageClass.CONTROL if method in _CONTROL else MessageClass.DATA
        try:
            self._admission.check(kind, caller, asyncio.get_running_loop().time())
        except Overloaded as error:
            self.refused["rate" if isinstance(error, RateLimited) else "overload"] += 1
            raise

    def _failed(self, error: Exception) -> StoreAnswer:
        text = f"manager {self._manager} failed: {type(error).__name__}: {error}"
        return StoreAnswer(m=self._manager, error=fault_of(MainstayError(text)))

    async def _call(self, method: str, name: str, arguments: msgspec.Raw) -> Any:
        if method == "output":
            return await self._view.output(msgspec.msgpack.decode(arguments, type=JobOutputQuery))
        values: dict[str, Any] = msgspec.msgpack.decode(arguments, type=dict)
        match method:
            case "status":
                return status_page(await self._view.status(), str(values.get("after", "")))
            case "cores":
                return await self._view.cores()
            case "journal":
                return await self.journal(msgspec.convert(values, JournalRange))
            case "drain":
                return await self._view.drain(str(values["node"]), str(values.get("by") or f"operator:{name}"))
        raise InvalidInput("method", f"a cluster has no {method!r}")

    def _own_journal(self, wanted: JournalRange) -> list[JournalEntry]:
        most = max(0, min(MOST_ENTRIES, wanted.most))
        return self._view.journal_entries(from_ms=wanted.from_ms, until_ms=wanted.until_ms, most=most)

    async def journal(self, wanted: JournalRange) -> list[JournalEntry]:
        """The journals of all managers as one; without those that do not answer."""
        arguments = msgspec.Raw(msgspec.msgpack.encode(wanted))
        body = msgspec.msgpack.encode(msgspec.structs.replace(self._envelope, a=arguments))

        async def part_of(manager: str) -> list[JournalEntry]:
            try:
                answer = await self._bus.request(f"control.manager.{manager}.journal", body, _PEER_S)
                found = msgspec.msgpack.decode(answer, type=StoreAnswer)
                return [] if found.error is not None else msgspec.msgpack.decode(found.ok, type=list[JournalEntry])
            except (MainstayError, msgspec.MsgspecError):
                return []

        parts = await asyncio.gather(*(part_of(manager) for manager in self._view.peers()))
        return merge_journals([self._own_journal(wanted), *parts], most=max(0, min(MOST_ENTRIES, wanted.most)))


class ClusterClient:
    """The side of an operator, or of another manager: asks any manager. A request that is not answered is sent again,
    to the same manager or another one; a refusal is an answer."""

    def __init__(
        self,
        bus: Bus,
        *,
        name: str,
        cluster: str,
        environment: str = "default",
        role: str = "operator",
        rng: random.Random | None = None,
        version: str = MAINSTAY_VERSION,
        tries: int = len(_ANSWER_S),
    ) -> None:
        self._tries = tries
        self._role = role
        self._bus = bus
        self._name = name
        self._envelope = StoreRequest(v=version, c=cluster, e=environment, id="")
        self._rng = rng or random.Random()

    async def status(self) -> ClusterStatus:
        """The cluster as one manager sees it. The nodes of a large one come in several answers, of any managers."""
        first = page = await self._page("")
        nodes = [*first.status.nodes]
        while page.next_after:
            page = await self._page(page.next_after)
            nodes += page.status.nodes
        return msgspec.structs.replace(first.status, nodes=nodes)

    async def _page(self, after: str) -> StatusPage:
        return msgspec.msgpack.decode(await self._ask("status", {"after": after}), type=StatusPage)

    async def cores(self) -> ClusterCores:
        """The cores of the nodes, with the runs that hold them and those that wait."""
        return msgspec.msgpack.decode(await self._ask("cores", {}), type=ClusterCores)

    async def drain(self, node: str, *, by: str) -> bool:
        """Ask a node to drain; False: no such node."""
        return msgspec.msgpack.decode(await self._ask("drain", {"node": node, "by": by}), type=bool)

    async def journal(
        self, *, from_ms: int | None = None, until_ms: int | None = None, most: int = 50
    ) -> list[JournalEntry]:
        """The journal of all managers: the newest entries of a time range, oldest first."""
        body = await self._ask("journal", {"from_ms": from_ms, "until_ms": until_ms, "most": most})
        return msgspec.msgpack.decode(body, type=list[JournalEntry])

    async def output(self, query: JobOutputQuery) -> JobOutput:
        """What is kept of the output of an attempt of a job."""
        return msgspec.msgpack.decode(await self._ask("output", msgspec.structs.asdict(query)), type=JobOutput)

    async def output_chunks(self) -> Subscription[BusMessage]:
        """The output that nodes publish because an operator follows it; `read_chunk` reads a message."""
        return await self._bus.subscribe("telemetry.output.*")

    @staticmethod
    def read_chunk(message: BusMessage) -> OutputChunk | None:
        """The content of such a message; None: a node sent something else."""
        try:
            return msgspec.msgpack.decode(message.body, type=OutputChunk)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None

    async def _ask(self, method: str, values: dict[str, Any]) -> msgspec.Raw:
        arguments = msgspec.Raw(msgspec.msgpack.encode(values))
        request = msgspec.structs.replace(self._envelope, id=f"{self._rng.getrandbits(96):024x}", a=arguments)
        subject = f"data.cluster.{self._role}.{self._name}.{method}"
        data = msgspec.msgpack.encode(request)
        answer = msgspec.msgpack.decode(await self._answered(subject, data), type=StoreAnswer)
        if answer.error is not None:
            raise error_of(answer.error)
        return answer.ok

    async def _answered(self, subject: str, body: bytes) -> bytes:
        for tried, answer_s in enumerate(_ANSWER_S, start=1):
            try:
                return await self._bus.request(subject, body, answer_s)
            except (NoResponders, RequestTimeout):
                if tried >= self._tries:
                    raise
            await asyncio.sleep(self._rng.uniform(0.0, min(_LONGEST_PAUSE_S, _PAUSE_S * 2.0 ** (tried - 1))))
        raise AssertionError("the last try returns or raises")


__all__ = ["MOST_ENTRIES", "ClusterClient", "ClusterService", "ClusterView", "JournalRange"]
