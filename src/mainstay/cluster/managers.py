"""The managers of a cluster as they know each other: each announces itself every second."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import msgspec

from ..bus import Bus
from ..errors import BusError
from ..stores.remote import compatible
from .status import ManagerInfo

log = logging.getLogger("mainstay.cluster")

SUBJECT = "control.manager.info"
EVERY_S = 1.0
#: a manager that was not heard for this long is not listed
GONE_S = 10.0


class ManagerDirectory:
    """A service: `start`, then `stop`."""

    def __init__(
        self,
        bus: Bus,
        own: Callable[[], ManagerInfo],
        *,
        every_s: float = EVERY_S,
    ) -> None:
        self._bus = bus
        self._own = own
        self._every_s = every_s
        self._heard: dict[str, tuple[ManagerInfo, float]] = {}
        self._twin: ManagerInfo | None = None
        """another manager that uses the name of this one"""
        self._twin_s = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._skewed: dict[str, tuple[str, float]] = {}

    def alarms(self) -> list[str]:
        """Managers that do not work with this one: by their version, or because they use its name."""
        own, twin = self._own(), self._twin
        skewed = [
            f"manager {name} has version {version}, which does not work with {own.version}: upgrade the older one"
            for name, (version, _) in sorted(self._skewed.items())
        ]
        return skewed if twin is None else [*skewed, _twin_alarm(own, twin)]

    def known(self) -> list[ManagerInfo]:
        """The managers that were heard recently, this one included, by name."""
        own = self._own()
        others = [info for info, _ in self._heard.values() if info.name != own.name]
        return sorted([own, *others], key=lambda info: info.name)

    async def start(self) -> None:
        subscription = await self._bus.subscribe(SUBJECT)

        async def listen() -> None:
            async with subscription:
                async for message in subscription:
                    with contextlib.suppress(msgspec.MsgspecError):
                        self._receive(msgspec.msgpack.decode(message.body, type=ManagerInfo))

        self._tasks = [
            asyncio.create_task(listen(), name="mainstay managers"),
            asyncio.create_task(self._announce(), name="mainstay manager announces itself"),
        ]

    async def stop(self) -> None:
        """Say goodbye, so that the others do not wait for the silence."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
            with contextlib.suppress(BusError):
                leaving = msgspec.structs.replace(self._own(), session="", started_ms=0)
                await self._bus.publish(SUBJECT, msgspec.msgpack.encode(leaving))

    async def _announce(self) -> None:
        while True:
            with contextlib.suppress(BusError):
                await self._bus.publish(SUBJECT, msgspec.msgpack.encode(self._own()))
            now_s = asyncio.get_running_loop().time()
            for name, (_, at_s) in list(self._heard.items()):
                if now_s - at_s > GONE_S:
                    del self._heard[name]
            for name, (_, at_s) in list(self._skewed.items()):
                if now_s - at_s > GONE_S:
                    del self._skewed[name]
            if self._twin is not None and now_s - self._twin_s > GONE_S:
                self._twin = None
            await asyncio.sleep(self._every_s)

    def _receive(self, info: ManagerInfo) -> None:
        own = self._own()
        if info.name == own.name:
            if info.started_ms and (info.host, info.pid, info.started_ms) != (own.host, own.pid, own.started_ms):
                self._meet(info)
            return
        if not info.started_ms:
            self._heard.pop(info.name, None)
            self._skewed.pop(info.name, None)
            return
        now_s, own = asyncio.get_running_loop().time(), self._own()
        if not compatible(own.version, info.version):
            if info.name not in self._skewed:
                log.warning(
                    "manager %s has version %s, which does not work with %s", info.name, info.version, own.version
                )
            self._skewed[info.name] = (info.version, now_s)
            return
        self._skewed.pop(info.name, None)
        self._heard[info.name] = (info, now_s)

    def _meet(self, twin: ManagerInfo) -> None:
        first, self._twin = self._twin is None, twin
        self._twin_s = asyncio.get_running_loop().time()
        if first:
            log.error("%s", _twin_alarm(self._own(), twin))


def _twin_alarm(own: ManagerInfo, twin: ManagerInfo) -> str:
    """Each of two managers with one name answers requests that are meant for the other."""
    return f"two managers use the name {own.name}: this one on {own.host} and one on {twin.host}; rename one of them"


__all__ = ["ManagerDirectory"]
