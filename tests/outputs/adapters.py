"""Where outputs can be kept, for the suite. A new adapter adds an entry here and passes, or is not an adapter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from mainstay.outputs import OutputStore, open_outputs
from mainstay.stores.versioned import objects
from servers.azurite import azure_url
from servers.gcs import gcs_url
from servers.moto import s3_url
from tests.stores.versioned.conformance.remote import on


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    at: Callable[[Path], str]
    """the URL that belongs to a folder; the same folder, the same place"""
    shared: bool = True
    """whether another who opens it finds what is there"""
    prepare: Callable[[str], Awaitable[object]] | None = None

    async def open(self, folder: Path) -> OutputStore:
        url = self.at(folder)
        if self.prepare:
            await self.prepare(url)
        return await open_outputs(url)


ADAPTERS = [
    Adapter(name="memory", at=lambda _: "memory:", shared=False),
    Adapter(name="folder", at=lambda folder: f"file://{folder}/outputs"),
    Adapter(name="s3", at=on("moto", s3_url), prepare=objects.prepare),
    Adapter(name="gcs", at=on("gcs", gcs_url), prepare=objects.prepare),
    Adapter(name="azure", at=on("azurite", azure_url), prepare=objects.prepare),
]
