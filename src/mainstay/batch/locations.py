"""The output stores of a program, each opened once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from urllib.parse import quote
from weakref import WeakValueDictionary

from ..clock import Clock
from ..errors import InvalidInput
from ..outputs import Manifest, OutputStore, load_manifest, open_outputs
from ..storage import bare_url, shown_url, split_url

#: manifests in memory: a worker seldom runs units of more batches at a time
_MANIFESTS = 4
DEFAULT_FOLDER = "mainstay-outputs"


class OutputStores:
    """Open output stores by URL, and the manifests read from them.

    Jobs store URLs without secrets. When one is opened, the secrets of `own` or MAINSTAY_OUTPUTS are added if it is the
    same location; the environment of the storage's own tools works as well.
    """

    def __init__(self, clock: Clock | None = None, *, own: str | None = None) -> None:
        self._clock = clock
        self._own = own
        self._open: dict[str, OutputStore] = {}
        self._manifests: dict[tuple[str, str], Manifest] = {}
        self._turns: WeakValueDictionary[tuple[int, str, str], asyncio.Lock] = WeakValueDictionary()

    async def get(self, url: str, *, create: bool = False) -> OutputStore:
        """The store of a URL, the same each time. Only a submit creates a missing folder: for others it is a disk that
        is not mounted."""
        if (store := self._open.get(url)) is None:
            whole = self._with_secrets(url)
            store = await open_outputs(whole if create else _without_create(whole), clock=self._clock)
            store, spare = self._open.setdefault(url, store), store
            if store is not spare:
                await spare.close()
        return store

    def _with_secrets(self, url: str) -> str:
        for ours in (self._own, os.environ.get("MAINSTAY_OUTPUTS")):
            if ours and bare_url(ours) == url:
                return ours
        return url

    def stored(self, url: str) -> str:
        """A URL as it is stored with a job. Refuses secrets that workers would not have."""
        bare = bare_url(url)
        if bare != url and self._with_secrets(bare) != url:
            raise InvalidInput(
                "outputs",
                f"{shown_url(url)} contains a secret, which is not stored with jobs; pass it to App(..., outputs=URL)"
                " or set MAINSTAY_OUTPUTS, here and for the workers",
            )
        return bare

    async def manifest(self, url: str, job_id: str) -> Manifest:
        """The manifest of a job."""
        key = url, job_id
        if (manifest := self._manifests.get(key)) is None:
            store = await self.get(url)
            # many aggregations of a job start at once, and its manifest may be large: read it once
            async with self._turns.setdefault((id(asyncio.get_running_loop()), *key), asyncio.Lock()):
                if (manifest := self._manifests.get(key)) is None:
                    manifest = await load_manifest(store, job_id)
                    while len(self._manifests) >= _MANIFESTS:
                        self._manifests.pop(next(iter(self._manifests)), None)
                    self._manifests[key] = manifest
        return manifest

    async def close(self) -> None:
        """Close all stores; the next use opens them again."""
        opened, self._open = list(self._open.values()), {}
        self._manifests.clear()
        for store in opened:
            await store.close()


def _without_create(url: str) -> str:
    if not url.startswith("file:") or "create=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}create=off"


def outputs_url(given: str | None, store_url: str) -> str:
    """The URL of the outputs: as given, MAINSTAY_OUTPUTS, or a folder here if the job store is local, too. A relative
    folder is made absolute, for workers that start elsewhere."""
    url = given or os.environ.get("MAINSTAY_OUTPUTS")
    if not url:
        if split_url(store_url).scheme not in ("memory", "sqlite", "file"):
            raise InvalidInput(
                "outputs",
                "no location for outputs is configured; write App(..., outputs='s3://bucket/prefix'), or set "
                "MAINSTAY_OUTPUTS",
            )
        url = f"file:{DEFAULT_FOLDER}"
    parts = split_url(url)
    if parts.scheme == "file" and not url.startswith("file:/"):
        path = Path(url.removeprefix("file:").partition("?")[0]).resolve()
        return f"file://{quote(str(path))}" + (f"?{parts.query}" if parts.query else "")
    return url
