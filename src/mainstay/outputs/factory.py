"""From a URL to an open output store.

Adapters are found by the scheme, through the entry point group `mainstay.outputs`. An adapter is an async callable

    open(url: str, *, options: dict[str, str]) -> Blobs
"""

from __future__ import annotations

import random

from ..clock import Clock, SystemClock
from ..storage import Adapters
from .blobs import Blobs
from .store import OutputStore

_ADAPTERS = Adapters(
    noun="output store",
    field="outputs",
    example="file:///srv/outputs",
    group="mainstay.outputs",
    ours={
        "memory": "mainstay.outputs.blobs.memory:open_memory",
        "file": "mainstay.outputs.blobs.folder:open_folder",
        "s3": "mainstay.outputs.blobs.objects:open_objects",
        "gs": "mainstay.outputs.blobs.objects:open_objects",
        "az": "mainstay.outputs.blobs.objects:open_objects",
    },
    drivers={"obstore": "objects"},
)


async def open_outputs(url: str, *, clock: Clock | None = None, rng: random.Random | None = None) -> OutputStore:
    """Open the output store a URL names: `memory:`, `file:///srv/outputs`, `file:relative`, `s3://bucket/prefix`,
    `gs://bucket/prefix`, `az://container/prefix`.

    >>> import asyncio
    >>> from mainstay.outputs import Unit
    >>> async def first():
    ...     async with await open_outputs("memory:") as store:
    ...         unit = Unit("sir", "2024-10", {"beta": 0.3}, seed=7)
    ...         await store.publish(unit, {"result.csv": b"day,infected"})
    ...         return await store.read(unit, "result.csv")
    >>> asyncio.run(first())
    b'day,infected'
    """
    blobs = await open_blobs(url)
    return OutputStore(blobs, clock=clock or SystemClock(), rng=rng or random.Random())


async def open_blobs(url: str) -> Blobs:
    """Open the files themselves, without the layout of outputs: for other things that are stored by name, like the
    bundles of a cluster. The URLs are those of `open_outputs`."""
    blobs: Blobs = await _ADAPTERS.open(url)
    return blobs
