"""Files as objects of a bucket: S3 and what speaks like it, Google Cloud Storage, Azure Blob; through obstore.

A service shows an object when all of it is there. Big files are sent in parts; those of a sender who died stay hidden,
and cost money until a lifecycle rule of the bucket ("abort incomplete multipart uploads") removes them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import obstore

from ...errors import StoreClosed, StoreError
from ...storage.buckets import BucketAddress
from ...storage.keys import check_key
from ...storage.service_errors import TROUBLE, judge
from . import Blob, Blobs, Digest, Files

if TYPE_CHECKING:
    from obstore.store import ObjectStore

A = TypeVar("A")

_AT_ONCE = 16
_PAGE = 1000
_PART = 8 * 1024 * 1024
_MOST_PARTS = 9_000
_CHUNK = 1024 * 1024
#: below this, the way to a thread takes longer than hashing
_SMALL = 64 * 1024


class ObjectsBlobs:
    """Open it with `open_outputs("s3://bucket/prefix")`."""

    def __init__(self, address: BucketAddress) -> None:
        self._address = address
        self._root = f"{address.prefix}/" if address.prefix else ""
        # a file is written whole or not at all, and again is as good as once: the driver may try again
        self._bucket: ObjectStore | None = address.connect(retries=address.tries - 1)
        #: pages of lists asked for, for whoever wants to know what a look cost
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
        except TROUBLE as error:
            raise self._refused(error, path) from None
        return Blob(size, _tag(done["e_tag"], done["version"]))

    async def read(self, paths: Sequence[str]) -> list[bytes | StoreError | None]:
        async def read(path: str) -> bytes | None:
            found = await self._get(path)
            return None if found is None else bytes(await found.bytes_async())

        return await self._each(paths, read)

    async def digests(self, paths: Sequence[str]) -> list[Digest | StoreError | None]:
        async def digest(path: str) -> Digest | None:
            found = await self._get(path)
            return None if found is None else await _drained(found.stream(_CHUNK), None)

        return await self._each(paths, digest)

    async def save(self, path: str, target: Path) -> Digest | None:
        try:
            found = await self._get(path)
            return None if found is None else await _drained(found.stream(_CHUNK), target)
        except TROUBLE as error:
            raise self._refused(error, path) from None

    async def find(self, folders: Sequence[str]) -> list[Files | StoreError]:
        """Folders side by side are listed together, unless much else stands between them."""
        groups: dict[str, list[str]] = {}
        for folder in folders:
            groups.setdefault(folder.rpartition("/")[0], []).append(folder)
        inside: dict[str, Files | StoreError] = {}
        above = {parent.rpartition("/")[0] for parent in groups}
        # pages come one after the other, groups side by side: all at once only if that takes no longer
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
        except TROUBLE as error:
            raise self._refused(error, "") from None
        return sorted(prefix.removeprefix(self._root).strip("/") for prefix in found["common_prefixes"])

    async def delete(self, paths: Sequence[str]) -> None:
        async def delete(path: str) -> None:
            try:
                await obstore.delete_async(self._open(), self._root + path)
            except FileNotFoundError as error:
                judge(error, scheme=self._address.scheme, place=self.place)

        for answer in await self._each(paths, delete):
            if isinstance(answer, StoreError):
                raise answer

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
            judge(error, scheme=self._address.scheme, place=self.place)
            return None

    async def _find_in(
        self, parent: str, folders: Sequence[str], inside: dict[str, Files | StoreError], *, most: int | None
    ) -> None:
        """By one listing of what is above them; not at all if that has more pages than `most`."""
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
        except TROUBLE as error:
            raise self._refused(error, folder) from None

    async def _each(
        self, items: Sequence[str], ask: Callable[[str], Awaitable[A | None]]
    ) -> list[A | StoreError | None]:
        """All of them, a few at a time: as many tasks as are at work, however many there are to do."""
        self._open()
        answers: list[A | StoreError | None] = [None] * len(items)
        todo = iter(enumerate(items))

        async def work() -> None:
            for place, item in todo:
                try:
                    answers[place] = await ask(item)
                except TROUBLE as error:
                    answers[place] = self._refused(error, item)
                except StoreError as error:
                    answers[place] = error

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(_AT_ONCE, len(items))):
                workers.create_task(work())
        return answers

    def _refused(self, error: Exception, path: str) -> StoreError:
        try:
            kind = judge(error, scheme=self._address.scheme, place=self.place)
        except StoreError as told:
            return told
        return StoreError(f"{self.place}: {path} is {kind}, which was not to be expected; try again")


async def _drained(stream: Any, target: Path | None) -> Digest:
    """Read it all, a piece at a time; into a file, if there is one."""
    digest, size = hashlib.sha256(), 0
    file = target.open("wb") if target else None
    try:
        async for piece in stream:
            size += len(piece)
            if file is None and len(piece) < _SMALL:
                digest.update(piece)
            else:
                await asyncio.to_thread(_taken, piece, digest, file)
    finally:
        if file:
            file.close()
    return Digest(size, digest.hexdigest())


def _taken(piece: Any, digest: Any, file: Any) -> None:
    digest.update(piece)
    if file:
        file.write(piece)


def _tag(e_tag: str | None, version: str | None) -> str:
    return (e_tag or version or "").strip('"')


async def open_objects(url: str, *, options: dict[str, str]) -> Blobs:
    """Open `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`; options as for versioned stores."""
    return ObjectsBlobs(BucketAddress.read(url, options))
