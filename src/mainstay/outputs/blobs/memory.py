"""Files in memory: for tests, and to try things out."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path

from ...errors import StoreClosed, StoreError
from ...storage import check_key, check_options
from . import Blob, Blobs, Files, OutputFile


class MemoryBlobs:
    """Open it with `open_outputs("memory:")`."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, Blob]] = {}
        self._numbers = count(1)
        self._closed = False

    @property
    def place(self) -> str:
        return "memory:"

    async def write(self, path: str, source: bytes | Path) -> Blob:
        check_key(path)
        body = source if isinstance(source, bytes) else await asyncio.to_thread(source.read_bytes)
        blob = Blob(len(body), str(next(self._numbers)))
        self._open()[path] = (body, blob)
        return blob

    async def read(self, paths: Sequence[str]) -> list[bytes | StoreError | None]:
        files = self._open()
        return [files[path][0] if path in files else None for path in paths]

    async def digests(self, paths: Sequence[str]) -> list[OutputFile | StoreError | None]:
        return [_digest(body) if isinstance(body, bytes) else None for body in await self.read(paths)]

    async def save(self, path: str, target: Path) -> OutputFile | None:
        found = self._open().get(path)
        if found is None:
            return None
        await asyncio.to_thread(target.write_bytes, found[0])
        return _digest(found[0])

    async def find(self, folders: Sequence[str]) -> list[Files | StoreError]:
        inside: dict[str, Files] = {folder: {} for folder in folders}
        for path, (_, blob) in self._open().items():
            folder, _, name = path.rpartition("/")
            if folder in inside:
                inside[folder][name] = blob
        return [inside[folder] for folder in folders]

    async def walk(self, prefix: str) -> AsyncIterator[tuple[str, Files]]:
        inside: dict[str, Files] = {}
        for path, (_, blob) in sorted(self._open().items()):
            if path.startswith(prefix):
                folder, _, name = path.rpartition("/")
                inside.setdefault(folder, {})[name] = blob
        for folder, files in sorted(inside.items()):
            yield folder, files

    async def tops(self) -> list[str]:
        return sorted({path.partition("/")[0] for path in self._open() if "/" in path})

    async def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._open().pop(path, None)

    async def close(self) -> None:
        self._closed = True

    def _open(self) -> dict[str, tuple[bytes, Blob]]:
        if self._closed:
            raise StoreClosed("memory: was closed; open it again")
        return self._files


def _digest(body: bytes) -> OutputFile:
    return OutputFile(len(body), hashlib.sha256(body).hexdigest())


async def open_memory(url: str, *, options: dict[str, str]) -> Blobs:  # noqa: ARG001  # all openers take one
    """`memory:`: new and empty each time."""
    check_options(options)
    return MemoryBlobs()
