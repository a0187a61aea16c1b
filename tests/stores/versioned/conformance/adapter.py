"""What the suite has to know about an adapter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from mainstay.stores.versioned import VersionedStore, open_versioned


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """How to come by a fresh store of a test's own."""

    name: str
    at: Callable[[Path], str]
    """the URL of the store that belongs to a folder; the same folder, the same store"""
    shared: bool = True
    """whether other processes, and whoever opens it again, find what is there"""
    prepare: Callable[[str], Awaitable[object]] | None = None
    """makes what the URL needs (a bucket, a table) before it is opened first"""
    largest: int = 1024 * 1024
    """bytes in the largest value it is asked to hold"""
    many: int = 2_500
    """keys in a store that is called full; a request to a server takes its time"""
    busy: int = 40
    """changes by each of those who write at once"""
    examples: int = 15
    """sequences of calls to try"""

    async def open(self, folder: Path) -> VersionedStore:
        url = self.at(folder)
        if self.prepare:
            await self.prepare(url)
        return await open_versioned(url)
