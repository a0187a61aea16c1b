"""What operators ask managers over the bus: the status of the cluster, its journal, and to drain a node."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from typing import Any, Protocol

import msgspec

from ..bus import Bus, BusMessage, Subscription
from ..errors import BusError, InvalidInput, MainstayError, RoleRefused, VersionSkew, WrongCluster
from ..stores.remote import MAINSTAY_VERSION, StoreAnswer, StoreRequest, check_versions, error_of, fault_of
from .status import ClusterStatus, JournalEntry

log = logging.getLogger("mainstay.cluster")

_PATTERN = "data.cluster.>"
_ROLES = ("operator", "manager")
_ANSWER_S = 5.0


class ClusterView(Protocol):
    """What a manager shows of its cluster."""

    async def status(self) -> ClusterStatus: ...

    async def drain(self, node: str, by: str) -> bool:
        """False: no such node."""
        ...

    def journal_entries(self, *, after_ms: int = 0, most: int = 50) -> list[JournalEntry]: ...


class ClusterService:
    """Answers `data.cluster.ROLE.NAME.METHOD`. A service: `start`, then `stop`."""

    def __init__(
        self,
        bus: Bus,
        view: ClusterView,
        *,
        manager: str,
        cluster: str,
        environment: str,
        version: str = MAINSTAY_VERSION,
    ) -> None:
        self._version = version
        self._bus = bus
        self._view = view
        self._manager = manager
        self._cluster = cluster
        self._environment = environment
        self._subscription: Subscription[BusMessage] | None = None
        self._task: asyncio.Task[None] | None = None
        #: refused requests, by reason
        self.refused: Counter[str] = Counter()

    async def start(self) -> None:
        self._subscription = await self._bus.subscribe(_PATTERN, group="managers")
        self._task = asyncio.create_task(self._run(self._subscription), name="mainstay cluster requests")

    async def stop(self) -> None:
        if self._subscription is not None:
            await self._subscription.close()
        if self._task is not None:
            await self._task
        self._subscription = self._task = None

    async def _run(self, requests: Subscription[BusMessage]) -> None:
        async for message in requests:
            answer = await self._answer(message)
            if message.reply is not None:
                with contextlib.suppress(BusError):  # the caller asks again
                    await self._bus.publish(message.reply, msgspec.msgpack.encode(answer))

    async def _answer(self, message: BusMessage) -> StoreAnswer:
        words = message.subject.split(".")
        role, name, method = words[2], ".".join(words[3:-1]), words[-1]
        try:
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
            value = await self._call(method, name, msgspec.msgpack.decode(request.a))
            return StoreAnswer(m=self._manager, ok=msgspec.Raw(msgspec.msgpack.encode(value)))
        except MainstayError as error:
            return StoreAnswer(m=self._manager, error=fault_of(error))
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
            self.refused["input"] += 1
            return StoreAnswer(m=self._manager, error=fault_of(InvalidInput("request", f"cannot be read: {error}")))
        except Exception as error:  # the next request must be answered
            log.exception("a request failed method=%s caller=%s:%s", method, role, name)
            text = f"manager {self._manager} failed: {type(error).__name__}: {error}"
            return StoreAnswer(m=self._manager, error=fault_of(MainstayError(text)))

    async def _call(self, method: str, name: str, values: dict[str, Any]) -> Any:
        match method:
            case "status":
                return await self._view.status()
            case "journal":
                most = min(1000, int(values.get("most", 50)))
                return self._view.journal_entries(after_ms=int(values.get("after_ms", 0)), most=most)
            case "drain":
                return await self._view.drain(str(values["node"]), str(values.get("by") or f"operator:{name}"))
        raise InvalidInput("method", f"a cluster has no {method!r}")


class ClusterClient:
    """The side of an operator, or of another manager: asks any manager."""

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
    ) -> None:
        self._role = role
        self._bus = bus
        self._name = name
        self._envelope = StoreRequest(v=version, c=cluster, e=environment, id="")
        self._rng = rng or random.Random()

    async def status(self) -> ClusterStatus:
        """The cluster as one manager sees it."""
        return msgspec.msgpack.decode(await self._ask("status", {}), type=ClusterStatus)

    async def drain(self, node: str, *, by: str) -> bool:
        """Ask a node to drain; False: no such node."""
        return msgspec.msgpack.decode(await self._ask("drain", {"node": node, "by": by}), type=bool)

    async def journal(self, *, after_ms: int = 0, most: int = 50) -> list[JournalEntry]:
        """The newest entries of one manager's journal."""
        body = await self._ask("journal", {"after_ms": after_ms, "most": most})
        return msgspec.msgpack.decode(body, type=list[JournalEntry])

    async def _ask(self, method: str, values: dict[str, Any]) -> msgspec.Raw:
        arguments = msgspec.Raw(msgspec.msgpack.encode(values))
        request = msgspec.structs.replace(self._envelope, id=f"{self._rng.getrandbits(96):024x}", a=arguments)
        subject = f"data.cluster.{self._role}.{self._name}.{method}"
        body = await self._bus.request(subject, msgspec.msgpack.encode(request), _ANSWER_S)
        answer = msgspec.msgpack.decode(body, type=StoreAnswer)
        if answer.error is not None:
            raise error_of(answer.error)
        return answer.ok


__all__ = ["ClusterClient", "ClusterService", "ClusterView"]
