"""The adapters the suite runs against. A new one adds an entry here and passes, or is not an adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from mainstay.clock import Clock
from mainstay.stores import JobStore, open_store
from tests import places


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """How to make a fresh store, and whether opening it again finds what was there."""

    name: str
    url: str = ""
    """`{folder}` stands for a folder of the test's own"""
    server: Literal["postgresql", "redis"] | None = None
    """on which it has a place of the test's own, instead"""
    persistent: bool

    def at(self, folder: Path) -> str:
        """The URL of the store that belongs to a folder."""
        return places.place(self.server, folder, reusable=True) if self.server else self.url.format(folder=folder)

    async def open(self, folder: Path, clock: Clock) -> JobStore:
        return await open_store(self.at(folder), clock=clock)

    def clear(self, folder: Path) -> None:
        """Leave nothing of it on a server; the folder itself is the test's."""
        if self.server:
            places.clear(folder)


ADAPTERS = (
    Adapter(name="memory", url="memory:", persistent=False),
    Adapter(name="sqlite", url="sqlite:///{folder}/jobs.db", persistent=True),
    Adapter(name="postgres", server="postgresql", persistent=True),
    Adapter(name="redis", server="redis", persistent=True),
    Adapter(name="registry", url="file://{folder}/registry", persistent=True),
)
