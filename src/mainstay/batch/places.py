"""The stores of outputs that a program uses: each opened once."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from ..clock import Clock
from ..errors import InvalidInput
from ..outputs import Manifest, OutputStore, load_manifest, open_outputs
from ..storage.urls import split_url

#: manifests that are kept in memory: a worker seldom works for more jobs at a time
_MANIFESTS = 4
DEFAULT_FOLDER = "mainstay-outputs"


class Places:
    """Open stores by URL, and the manifests that were read from them."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self._open: dict[str, OutputStore] = {}
        self._manifests: dict[tuple[str, str], Manifest] = {}

    async def get(self, url: str, *, create: bool = False) -> OutputStore:
        """The store of a URL; the same each time. Only who submits makes a folder that is not there: to everybody else
        that is a disk that is not mounted."""
        if (found := self._open.get(url)) is None:
            found = await open_outputs(url if create else _as_it_is(url), clock=self._clock)
            found, spare = self._open.setdefault(url, found), found
            if found is not spare:
                await spare.close()
        return found

    async def manifest(self, url: str, job_id: str) -> Manifest:
        """What a job is expected to make."""
        key = url, job_id
        if (found := self._manifests.get(key)) is None:
            found = await load_manifest(await self.get(url), job_id)
            while len(self._manifests) >= _MANIFESTS:
                self._manifests.pop(next(iter(self._manifests)))
            self._manifests[key] = found
        return found

    async def close(self) -> None:
        """Close what is open; the next use opens it again."""
        opened, self._open = list(self._open.values()), {}
        self._manifests.clear()
        for store in opened:
            await store.close()


def _as_it_is(url: str) -> str:
    if not url.startswith("file:") or "create=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}create=off"


def outputs_url(given: str | None, store_url: str) -> str:
    """Where outputs go: as given, as MAINSTAY_OUTPUTS says, or into a folder here if the jobs are kept here, too. A
    relative folder is meant from here, also for workers that are started elsewhere."""
    url = given or os.environ.get("MAINSTAY_OUTPUTS")
    if not url:
        if split_url(store_url).scheme not in ("memory", "sqlite", "file"):
            raise InvalidInput(
                "outputs",
                "nobody said where outputs are to go; write App(..., outputs='s3://bucket/prefix'), or set "
                "MAINSTAY_OUTPUTS",
            )
        url = f"file:{DEFAULT_FOLDER}"
    parts = split_url(url)
    if parts.scheme == "file" and not url.startswith("file:/"):
        path = Path(url.removeprefix("file:").partition("?")[0]).resolve()
        return f"file://{quote(str(path))}" + (f"?{parts.query}" if parts.query else "")
    return url
