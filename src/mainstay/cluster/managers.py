"""The managers of a cluster as they know each other: each announces itself every second."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from ..bus import Bus
from ..errors import BusError
from .status import ManagerInfo

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
        self._tasks: list[asyncio.Task[None]] = []

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
            await asyncio.sleep(self._every_s)

    def _receive(self, info: ManagerInfo) -> None:
        if info.name == self._own().name:
            return
        if not info.started_ms:
            self._heard.pop(info.name, None)
            return
        now_s = asyncio.get_running_loop().time()
        self._heard[info.name] = (info, now_s)
        self._led.update(dict.fromkeys(info.leads, now_s))


__all__ = ["ManagerDirectory"]
