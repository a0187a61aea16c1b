"""A small program to bundle, and the two sides of a cluster around it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from mainstay.bundles import (
    Bundle,
    BundleClient,
    BundleService,
    BundleStorage,
    PublishResult,
    publish_bundle,
)
from mainstay.bus import MemoryBusNetwork
from mainstay.outputs import Blobs, open_blobs

OURS = {"cluster": "main", "environment": "test"}


def write_program(root: Path, files: dict[str, str | bytes]) -> Path:
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def shop(root: Path, *, rate: str = "1.5") -> Path:
    return write_program(
        root,
        {
            "shop/__init__.py": "",
            "shop/tasks.py": "from .prices import RATE\napp = RATE\n",
            "shop/prices.py": f"RATE = {rate}\n",
            "shop/unused.py": "",
            "data/rates.csv": "a,b\n" * 10,
        },
    )


class Side(NamedTuple):
    network: MemoryBusNetwork
    blobs: Blobs
    service: BundleService

    def client(self, role: str = "node", name: str = "n1", **changed) -> BundleClient:
        return BundleClient(self.network.client(name), role=role, name=name, **{**OURS, **changed})


@contextlib.asynccontextmanager
async def managed(url: str = "memory:", **options) -> AsyncIterator[Side]:
    """A manager that answers on a bus."""
    network, blobs = MemoryBusNetwork(), await open_blobs(url)
    async with BundleService(blobs, network.client("m1"), name="m1", **OURS, **options) as service:
        yield Side(network, blobs, service)
    await blobs.close()


async def stored(blobs: Blobs, bundle: Bundle, **options) -> PublishResult:
    """Publish without a bus."""
    return await publish_bundle(BundleStorage(blobs), bundle, **options)


class Recorded:
    """Calls of `fetch`, and what happens to their answers."""

    def __init__(self, client: BundleClient) -> None:
        self.client = client
        self.calls: list[str] = []
        #: how many of the next answers for a digest get a flipped byte
        self.flips: dict[str, int] = {}

    async def __call__(self, digest: str) -> bytes:
        self.calls.append(digest)
        packed = await self.client.fetch(digest)
        if self.flips.get(digest, 0) == 0:
            return packed
        self.flips[digest] -= 1
        return packed[:-1] + bytes([packed[-1] ^ 1])
