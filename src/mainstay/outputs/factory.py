"""From a URL to an open store of outputs.

Adapters are found by the scheme, through the entry point group `mainstay.outputs`. An adapter is an async callable

    open(url: str, *, options: dict[str, str]) -> Blobs
"""

from __future__ import annotations

import random
from typing import Protocol
from urllib.parse import parse_qsl

from ..clock import Clock, SystemClock
from ..errors import InvalidInput, NoAdapter
from ..storage.urls import driver_needed, find_adapter, known_schemes, shown_url, split_url
from .blobs import Blobs
from .store import OutputStore

GROUP = "mainstay.outputs"
_OURS = {
    "memory": "mainstay.outputs.blobs.memory:open_memory",
    "file": "mainstay.outputs.blobs.folder:open_folder",
    "s3": "mainstay.outputs.blobs.objects:open_objects",
    "gs": "mainstay.outputs.blobs.objects:open_objects",
    "az": "mainstay.outputs.blobs.objects:open_objects",
}
_DRIVERS = {"obstore": "objects"}


class OpenBlobs(Protocol):
    async def __call__(self, url: str, *, options: dict[str, str]) -> Blobs: ...


async def open_outputs(url: str, *, clock: Clock | None = None, rng: random.Random | None = None) -> OutputStore:
    """Open the outputs a URL names: `memory:`, `file:///srv/outputs`, `file:relative`, `s3://bucket/prefix`,
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
    if not isinstance(url, str) or ":" not in url:
        raise InvalidInput("outputs", f"{url!r} is not a URL; write one like 'file:///srv/outputs'")
    parts = split_url(url)
    with driver_needed(parts.scheme, _DRIVERS):
        opener: OpenBlobs | None = find_adapter(parts.scheme, group=GROUP, ours=_OURS)
        if opener is None:
            known = known_schemes(group=GROUP, ours=_OURS)
            raise NoAdapter(
                "outputs", f"outputs cannot be kept in {parts.scheme!r} (in {shown_url(url)!r}); known schemes: {known}"
            )
        blobs = await opener(url, options=dict(parse_qsl(parts.query, keep_blank_values=True)))
    return OutputStore(blobs, clock=clock or SystemClock(), rng=rng or random.Random())
