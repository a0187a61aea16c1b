"""The program of a manager's engine: the handlers of jobs that managers lead while nodes run their units."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import msgspec

from ..control import Control, Duty
from ..errors import UnknownTask
from ..kinds import kind_named, kinds, part
from ..model import LEAD_QUEUE, Settings
from ..worker import Context, Hook, LeadHost, Work


class LeadProgram:
    """A `worker.Program`. It knows every kind of job that has a handler for managers, under any name."""

    def __init__(self, host: LeadHost) -> None:
        self._host = host
        self._works: dict[str, Work] = {}

    @property
    def store_url(self) -> str:
        return self._host.control.store.url

    @property
    def settings(self) -> Settings:
        return self._host.control.settings

    @property
    def queues(self) -> Sequence[str]:
        return (LEAD_QUEUE,)

    async def open(self) -> Control:
        return self._host.control

    async def close(self) -> None:
        """The store belongs to the manager."""

    def work(self, kind: str, name: str) -> Work:
        work = self._works.get(kind)
        if work is None:
            declared = kind_named(kind)
            if declared is None or not declared.lead:
                raise UnknownTask(name, ())
            work = self._works[kind] = part(declared.lead)(self._host)
        return work

    def check(self) -> None:
        """Make the handlers of all kinds. Raises `MissingExtra` if this machine lacks what one of them needs."""
        for kind in kinds():
            if kind.lead:
                self.work(kind.name, kind.name)

    def pack(self, value: Any) -> bytes:
        return bytes(value) if isinstance(value, msgspec.Raw) else msgspec.msgpack.encode(value)

    def unpack(self, data: bytes) -> Any:
        return msgspec.msgpack.decode(data)

    def lifespan(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    def around(self, context: Context) -> Sequence[Hook]:
        del context
        return ()

    async def prepare(self, control: Control) -> None:
        """It declares nothing."""
        del control

    def duties(self, control: Control) -> Sequence[Duty]:
        del control
        return ()


__all__ = ["LeadProgram"]
