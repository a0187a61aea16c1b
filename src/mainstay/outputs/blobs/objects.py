"""Files as objects of a bucket: S3 and what speaks like it, Google Cloud Storage, Azure Blob; through obstore.

A service shows an object only when it is complete. Big files are sent in parts; the parts of a killed sender stay
hidden, and cost money until a lifecycle rule of the bucket ("abort incomplete multipart uploads") removes them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import obstore

from ...errors import StoreClosed, StoreError
from ...storage import SERVICE_ERRORS, BucketAddress, check_key
from . import Blob, Blobs, Files, OutputFile, or_raise

if TYPE_CHECKING:
    from obstore.store import ObjectStore

A = TypeVar("A")

_AT_ONCE = 16
_PAGE = 1000
_PART = 8 * 1024 * 1024
_MOST_PARTS = 9_000
_CHUNK = 1024 * 1024
#: below this size, a switch to a thread takes longer than hashing
_SMALL = 64 * 1024


class ObjectsBlobs:
    """Open it with `open_outputs("s3://bucket/prefix")`."""

    def __init__(self, address: BucketAddress) -> None:
        self._address = address
        self._root = address.root
        # a file is written completely or not at all, and twice does no harm: the driver may repeat it
        self._bucket: ObjectStore | None = address.connect(retries=address.tries - 1)
        #: pages of lists that were requested: the cost of a lookup
        self.lists = 0

    @property
    def place(self) -> str:
        return self._address.place

    async def write(self, path: str, source: bytes | Path) -> Blob:
        check_key(path)
        size = len(source) if isinstance(source, bytes) else (await asyncio.to_thread(source.stat)).st_size
        part = max(_PART, size // _MOST_PARTS)
        try:
            done = await obstore.put_async(
                self._open(), self._root + path, source, use_multipart=size > part, chunk_size=part
            )
        except SERVICE_ERRORS as error:
            raise self._refused(error, path) from None
        return Blob(size, _tag(done["e_tag"], done["version"]))

    async def read(self, paths: Sequence[str]) -> list[bytes | StoreError | None]:
        async def read(path: str) -> bytes | None:
            response = await self._get(path)
            return None if response is None else bytes(await response.bytes_async())

        return await self._each(paths, read)

    async def digests(self, paths: Sequence[str]) -> list[OutputFile | StoreError | None]:
        async def digest(path: str) -> OutputFile | None:
            response = await self._get(path)
            return None if response is None else await _drained(response.stream(_CHUNK), None)

        return await self._each(paths, digest)

    async def save(self, path: str, target: Path) -> OutputFile | None:
        try:
            response = await self._get(path)
            return None if response is None else await _drained(response.stream(_CHUNK), target)
        except SERVICE_ERRORS as error:
            raise self._refused(error, path) from None

    async def find(self, folders: Sequence[str]) -> list[Files | StoreError]:
        """Neighbouring folders are listed together, unless there is much else between them."""
        groups: dict[str, list[str]] = {}
        for folder in folders:
            groups.setdefault(folder.rpartition("/")[0], []).append(folder)
        inside: dict[str, Files | StoreError] = {}
        above = {parent.rpartition("/")[0] for parent in groups}
        # pages are requested one after the other, groups concurrently: one list for all only if that takes no longer
        if len(groups) > 1 and len(above) == 1:
            await self._find_in(above.pop(), folders, inside, most=max(1, len(groups) // _AT_ONCE))
        if not inside:

            async def find(parent: str) -> None:
                together = groups[parent]
                if len(together) > 1:
                    await self._find_in(parent, together, inside, most=len(together))
                for folder in together:
                    if folder not in inside:
                        await self._find_in(folder, [folder], inside, most=None)

            await self._each(list(groups), find)
        return [inside[folder] for folder in folders]

    async def walk(self, prefix: str) -> AsyncIterator[tuple[str, Files]]:
        last, files = "", Files()
        async for page in self._pages(prefix.rpartition("/")[0]):
            for path, blob in page:
                if not path.startswith(prefix):
                    continue
                folder, _, name = path.rpartition("/")
                if folder != last:
                    if files:
                        yield last, files
                    last, files = folder, {}
                files[name] = blob
        if files:
            yield last, files

    async def tops(self) -> list[str]:
        self.lists += 1
        try:
            found = await obstore.list_with_delimiter_async(self._open(), self._root.rstrip("/") or None)
        except SERVICE_ERRORS as error:
            raise self._refused(error, "") from None
        return sorted(prefix.removeprefix(self._root).strip("/") for prefix in found["common_prefixes"])

    async def delete(self, paths: Sequence[str]) -> None:
        async def delete(path: str) -> None:
            try:
                await obstore.delete_async(self._open(), self._root + path)
            except FileNotFoundError as error:
                self._address.classify(error)

        or_raise(await self._each(paths, delete))

    async def close(self) -> None:
        self._bucket = None

    def _open(self) -> ObjectStore:
        if self._bucket is None:
            raise StoreClosed(f"{self.place} was closed; open it again")
        return self._bucket

    async def _get(self, path: str) -> Any:
        try:
            return await obstore.get_async(self._open(), self._root + path)
        except FileNotFoundError as error:
            self._address.classify(error)
            return None

    async def _find_in(
        self, parent: str, folders: Sequence[str], inside: dict[str, Files | StoreError], *, most: int | None
    ) -> None:
        """By one listing of their parent; not at all if that has more pages than `most`."""
        found: dict[str, Files] = {folder: {} for folder in folders}
        pages = 0
        try:
            async for page in self._pages(parent):
                pages += 1
                if most is not None and pages > most:
                    return
                for path, blob in page:
                    folder, _, name = path.rpartition("/")
                    if folder in found:
                        found[folder][name] = blob
        except StoreError as error:
            inside.update(dict.fromkeys(folders, error))
            return
        inside.update(found)

    async def _pages(self, folder: str) -> AsyncIterator[list[tuple[str, Blob]]]:
        within = (self._root + folder).rstrip("/") or None
        cut = len(self._root)
        store = self._open()
        self.lists += 1
        first = True
        try:
            async for page in obstore.list(store, within, chunk_size=_PAGE):
                self.lists += not first
                first = False
                yield [(f["path"][cut:], Blob(f["size"], _tag(f["e_tag"], f["version"]))) for f in page]
        except SERVICE_ERRORS as error:
            raise self._refused(error, folder) from None

    async def _each(
        self, items: Sequence[str], request: Callable[[str], Awaitable[A | None]]
    ) -> list[A | StoreError | None]:
        """Send all requests with a limited number of tasks."""
        self._open()
        results: list[A | StoreError | None] = [None] * len(items)
        todo = iter(enumerate(items))

        async def work() -> None:
            for index, item in todo:
                try:
                    results[index] = await request(item)
                except SERVICE_ERRORS as error:
                    results[index] = self._refused(error, item)
                except StoreError as error:
                    results[index] = error

        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(_AT_ONCE, len(items))):
                tasks.create_task(work())
        return results

    def _refused(self, error: Exception, path: str) -> StoreError:
        try:
            answer = self._address.classify(error)
        except StoreError as translated:
            return translated
        return StoreError(f"{self.place}: the service reports {path} as {answer}, which is unexpected here; try again")


async def _drained(stream: Any, target: Path | None) -> OutputFile:
    """Read a stream to its end, piece by piece; into a file, if there is one."""
    digest, size = hashlib.sha256(), 0
    file = target.open("wb") if target else None
    try:
        async for piece in stream:
            size += len(piece)
            if file is None and len(piece) < _SMALL:
                digest.update(piece)
            else:
                await asyncio.to_thread(_digest_and_write, piece, digest, file)
    finally:
        if file:
            file.close()
    return OutputFile(size, digest.hexdigest())


def _digest_and_write(piece: Any, digest: Any, file: Any) -> None:
    digest.update(piece)
    if file:
        file.write(piece)


def _tag(e_tag: str | None, version: str | None) -> str:
    return (e_tag or version or "").strip('"')


async def open_objects(url: str, *, options: dict[str, str]) -> Blobs:
    """Open `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`; options as for versioned stores."""
    return ObjectsBlobs(BucketAddress.read(url, options))
