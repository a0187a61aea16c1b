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
        self._led: dict[str, float] = {}
        """when another manager last said that it holds a lead"""
        self._alarms: dict[str, tuple[str, float]] = {}
        """by key: a sentence, and when its reason was last heard"""
        self._tasks: list[asyncio.Task[None]] = []

    def alarms(self) -> dict[str, str]:
        """Managers that do not work with this one, by their version or because they use its name: sort and name of an
        alarm -> a sentence."""
        return {key: text for key, (text, _) in sorted(self._alarms.items())}

    def known(self) -> list[ManagerInfo]:
        """The managers that were heard recently, this one included, by name."""
        own = self._own()
        others = [info for info, _ in self._heard.values() if info.name != own.name]
        return sorted([own, *others], key=lambda info: info.name)

    def unled_s(self, lead: str) -> float | None:
        """How long no other manager has said that it holds a lead; None: none ever did."""
        at_s = self._led.get(lead)
        return None if at_s is None else round(asyncio.get_running_loop().time() - at_s, 3)

    async def start(self) -> None:
        subscription = await self._bus.subscribe(SUBJECT)

        async def listen() -> None:
            async with subscription:
                async for message in subscription:
                    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
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
                leaving = msgspec.structs.replace(self._own(), session="", started_ms=0, leads={})
                await self._bus.publish(SUBJECT, msgspec.msgpack.encode(leaving))

    async def _announce(self) -> None:
        while True:
            with contextlib.suppress(BusError):
                await self._bus.publish(SUBJECT, msgspec.msgpack.encode(self._own()))
            now_s = asyncio.get_running_loop().time()
            for name, (_, at_s) in list(self._heard.items()):
                if now_s - at_s > GONE_S:
                    del self._heard[name]
            for key, (_, at_s) in list(self._alarms.items()):
                if now_s - at_s > GONE_S:
                    del self._alarms[key]
            await asyncio.sleep(self._every_s)

    def _receive(self, info: ManagerInfo) -> None:
        own = self._own()
        if info.name == own.name:
            if info.started_ms and (info.host, info.pid, info.started_ms) != (own.host, own.pid, own.started_ms):
                self._meet(info)
            return
        if not info.started_ms:
            self._heard.pop(info.name, None)
            self._alarms.pop(f"manager_version:{info.name}", None)
            return
        now_s, own = asyncio.get_running_loop().time(), self._own()
        self._led.update(dict.fromkeys(info.leads, now_s))
        skew = f"manager_version:{info.name}"
        if not compatible(own.version, info.version):
            text = f"manager {info.name} has version {info.version}, which does not work with {own.version}"
            self._raise(skew, f"{text}: upgrade the older one", logging.WARNING)
            return
        self._alarms.pop(skew, None)
        self._heard[info.name] = (info, now_s)

    def _meet(self, twin: ManagerInfo) -> None:
        """Each of two managers with one name answers requests that are meant for the other."""
        own = self._own()
        text = f"two managers use the name {own.name}: one on {own.host} and one on {twin.host}"
        self._raise(f"manager_name:{own.name}", f"{text}; rename one of them", logging.ERROR)

    def _raise(self, key: str, text: str, level: int) -> None:
        if key not in self._alarms:
            log.log(level, "%s", text)
        self._alarms[key] = (text, asyncio.get_running_loop().time())


__all__ = ["ManagerDirectory"]
