"""The adapters the suite runs against. A new one adds an entry here and passes, or is not an adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from mainstay.clock import Clock
from mainstay.stores import JobStore, open_store
from tests import places
from tests.stores.remote.managers import open_behind_managers
from tests.stores.versioned.conformance.remote import REMOTE


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """How to make a fresh store, and whether opening it again finds what was there."""

    name: str
    url: str = ""
    """`{folder}` stands for a folder of the test's own"""
    server: Literal["postgresql", "redis"] | None = None
    """on which it has a place of the test's own, instead"""
    bucket: Literal["s3", "gcs", "azure", "dynamodb"] | None = None
    """in which it has a prefix of the test's own, instead"""
    persistent: bool
    modules: frozenset[str] | None = None
    """None: all of the suite; else what of it is not proven by another adapter of the same code"""
    remote: bool = False
    """through two managers over a bus, in front of a store in memory"""
    slow: int = 1
    """how many times as long a write takes as on a server: tests of many have so many times fewer"""

    def at(self, folder: Path) -> str:
        """The URL of the store that belongs to a folder."""
        if self.bucket:
            return BUCKETS[self.bucket].at(folder)
        return places.place(self.server, folder, reusable=True) if self.server else self.url.format(folder=folder)

    async def ready(self, folder: Path) -> str:
        """The same URL, with what it needs made."""
        if self.bucket and (prepare := BUCKETS[self.bucket].prepare):
            await prepare(self.at(folder))
        return self.at(folder)

    async def open(self, folder: Path, clock: Clock) -> JobStore:
        if self.remote:
            return await open_behind_managers(clock)
        return await open_store(await self.ready(folder), clock=clock)

    def clear(self, folder: Path) -> None:
        """Leave nothing of it on a server; the folder itself is the test's."""
        if self.server:
            places.clear(folder)


_TOUCHY = frozenset(
    f"test_{name}"
    for name in (
        "apply",
        "claim",
        "insert",
        "leadership",
        "placed_work",
        "reopen",
        "reports_and_beats",
        "sessions",
        "wake",
        "concurrency",
    )
)


def _all_but(*names: str) -> frozenset[str]:
    found = {path.stem for path in Path(__file__).parent.glob("test_*.py")}
    return frozenset(found - {f"test_{name}" for name in names})


BUCKETS = {found.name: found for found in REMOTE}
ADAPTERS = (
    Adapter(name="memory", url="memory:", persistent=False),
    # all but the observer, which hears the commits of one process: here those of the managers
    Adapter(name="remote", url="memory:", persistent=False, remote=True, modules=_all_but("observer")),
    Adapter(name="sqlite", url="sqlite:///{folder}/jobs.db", persistent=True),
    Adapter(name="postgres", server="postgresql", persistent=True),
    Adapter(name="redis", server="redis", persistent=True),
    Adapter(name="registry", url="file://{folder}/registry", persistent=True, slow=8),
    # the rules are those of the registry above, to the letter; what a server may change are answers, order and time
    Adapter(name="bucket", bucket="azure", persistent=True, slow=5, modules=_TOUCHY),
)
