"""Files in a folder of this machine, or of a share.

A file is written aside (in `.new`), forced to the disk and renamed, and the name is forced to the disk, too; with
`sync=off` neither is forced, which is faster and loses the last seconds when the machine goes down. What killed writers
left aside is removed when the folder is opened: whoever still writes holds a lock on it.

`.outputs` says what the folder is. Where it is missing the disk is not mounted: an outage, and not "no such file".
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from ...errors import (
    InvalidInput,
    PathBlocked,
    StoreClosed,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from ...storage.keys import check_key
from ...storage.options import check_options, is_on
from ...storage.private_files import make_private_folder, report_exposed
from ...storage.urls import shown_url, split_url
from . import Blob, Blobs, Digest, Files

T = TypeVar("T")
A = TypeVar("A")

_FORMAT = b"mainstay outputs 1\n"
_THREADS = 4
#: what one thread is given at a time: few enough to share the work, enough to be worth the way
_PIECE = 200
#: a file aside that is younger may not be locked yet
_YOUNG_S = 60.0
_TRIES = 5
_MOVE_IT = "move it away or remove it, then resume the batch or run the unit again"
#: read at once: the buffer for bigger ones takes longer to make than a small file to read
_SMALL = 128 * 1024
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
#: a write fails with these where something else stands in its way: not an outage, for waiting does not help
_BLOCKED = (errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ELOOP)


class FolderBlobs:
    """Open it with `open_outputs("file:///srv/outputs")`. The folder is made if its parent is there."""

    def __init__(self, folder: Path, *, place: str = "", create: bool = True, sync: bool = True) -> None:
        self._folder = folder.absolute()
        self._root = f"{self._folder}/"
        self._place = place or f"file://{self._folder}"
        self._marker = self._folder / ".outputs"
        self._aside = self._folder / ".new"
        self._sync = sync
        #: folders whose own names are known to be on the disk
        self._lasting: set[str] = {str(self._folder)}
        self._closed = False
        try:
            self._prepare(create=create)
        except OSError as error:
            raise self._told(error) from error
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="mainstay-outputs")

    @property
    def place(self) -> str:
        return self._place

    async def write(self, path: str, source: bytes | Path) -> Blob:
        check_key(path)
        return await self._run(lambda: self._write(self._root + path, source))

    async def read(self, paths: Sequence[str]) -> list[bytes | StoreError | None]:
        return await self._each(paths, _read)

    async def digests(self, paths: Sequence[str]) -> list[Digest | StoreError | None]:
        return await self._each(paths, _digest)

    async def save(self, path: str, target: Path) -> Digest | None:
        def run() -> Digest | None:
            with contextlib.ExitStack() as files:
                try:
                    source = files.enter_context(open(self._root + path, "rb"))
                except OSError as error:
                    if error.errno not in _ABSENT:
                        raise
                    self._check_there()
                    return None
                digest, size = hashlib.sha256(), 0
                with target.open("wb") as copy:
                    while piece := source.read(1 << 20):
                        digest.update(piece)
                        size += copy.write(piece)
                return Digest(size, digest.hexdigest())

        return await self._run(run)

    async def find(self, folders: Sequence[str]) -> list[Files | StoreError]:
        found = await self._each(folders, _inside)
        return [{} if files is None else files for files in found]

    async def walk(self, prefix: str) -> AsyncIterator[tuple[str, Files]]:
        """One folder at a time: whoever takes long with one holds nothing open."""
        within = prefix.rpartition("/")[0]
        todo = [within]
        while todo:
            folder = todo.pop()
            below, files = await self._run(partial(self._listed, folder))
            begin = f"{folder}/" if folder else ""
            if files and begin.startswith(prefix):
                yield folder, files
            todo += [
                inner
                for name in sorted(below, reverse=True)
                if (inner := begin + name).startswith(prefix) or prefix.startswith(f"{inner}/")
            ]

    async def tops(self) -> list[str]:
        below, _ = await self._run(lambda: self._listed(""))
        return sorted(below)

    async def delete(self, paths: Sequence[str]) -> None:
        def run() -> None:
            for path in paths:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(self._root + path)
            for folder in {os.path.dirname(self._root + path) for path in paths}:
                self._forced(folder)
                self._drop_empty(folder)

        await self._run(run)

    async def close(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)

    # -- threads ----------------------------------------------------------------------------------

    async def _run(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreClosed(f"{self._place} was closed; open it again")

        def run() -> T:
            try:
                return work()
            except OSError as error:
                raise self._told(error) from error

        return await asyncio.get_running_loop().run_in_executor(self._threads, run)

    async def _each(self, paths: Sequence[str], ask: Callable[[str], A | None]) -> list[A | StoreError | None]:
        def some(at: int) -> list[A | StoreError | None]:
            found = [self._asked(self._root + path, ask) for path in paths[at : at + _PIECE]]
            if any(answer is None for answer in found):
                try:
                    self._check_there()
                except StoreError as outage:
                    return [outage if answer is None else answer for answer in found]
            return found

        pieces = [self._run(partial(some, at)) for at in range(0, len(paths), _PIECE)]
        return [answer for piece in await asyncio.gather(*pieces) for answer in piece]

    def _asked(self, path: str, ask: Callable[[str], A | None]) -> A | StoreError | None:
        try:
            return ask(path)
        except OSError as error:
            return None if error.errno in _ABSENT else self._told(error)

    # -- files ------------------------------------------------------------------------------------

    def _write(self, path: str, source: bytes | Path) -> Blob:
        """Answer only when neither the file nor its name can be lost."""
        self._check_there()
        new = self._aside / os.urandom(8).hex()
        try:
            with new.open("xb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if isinstance(source, bytes):
                    file.write(source)
                else:
                    with source.open("rb") as given:
                        shutil.copyfileobj(given, file, 1 << 20)
                file.flush()
                if self._sync:
                    os.fsync(file.fileno())
                blob = _blob(os.fstat(file.fileno()))
                self._put(new, path)
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        self._forced(os.path.dirname(path))
        return blob

    def _put(self, new: Path, path: str) -> None:
        folder = os.path.dirname(path)
        for _ in range(_TRIES):
            try:
                self._make_folder(folder)
                new.replace(path)
            except FileNotFoundError:  # somebody else removed the folder: it was empty
                self._lasting = {str(self._folder)}
            except OSError as error:
                if error.errno not in _BLOCKED:
                    raise
                self._lasting = {str(self._folder)}
                self._clear_way(path)
            else:
                return
        self._clear_way(path)
        raise StoreUnavailable(f"{folder} is made and removed by others all the time; try again")

    def _clear_way(self, path: str) -> None:
        """Remove what stands in the way of a file if it holds nothing: an empty folder in its place, an empty file
        instead of one of its folders. Everything else is data of an unknown owner, so a person has to decide."""
        above = len(str(self._folder))
        places = [path[:at] for at in range(above + 1, len(path)) if path[at] == "/"]
        for place in places:
            if os.path.isdir(place) or not os.path.lexists(place):
                continue
            found = os.lstat(place)
            if stat.S_ISREG(found.st_mode) and found.st_size == 0:
                os.unlink(place)
                return
            kind = "a link that leads nowhere" if stat.S_ISLNK(found.st_mode) else "not a folder"
            raise PathBlocked(f"{place} is {kind}, so {path} cannot be written; {_MOVE_IT}")
        if os.path.isdir(path) and not os.path.islink(path):
            try:
                os.rmdir(path)
            except OSError:
                raise PathBlocked(f"{path} is a folder with something in it, not a file; {_MOVE_IT}") from None

    def _make_folder(self, folder: str) -> None:
        """Also where it is there: whoever made it may not have come as far as forcing its name to the disk."""
        if folder in self._lasting:
            return
        parent = os.path.dirname(folder)
        self._make_folder(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        self._forced(parent)
        # those of units are used once or twice, and there are many
        if folder.count("/") < self._root.count("/") + 3:
            self._lasting.add(folder)

    def _drop_empty(self, folder: str) -> None:
        """Folders that are empty go, those above them, too."""
        with contextlib.suppress(OSError):
            while folder != str(self._folder):
                os.rmdir(folder)
                self._lasting.discard(folder)
                folder = os.path.dirname(folder)

    def _forced(self, folder: str) -> None:
        if self._sync:
            with contextlib.suppress(FileNotFoundError):  # emptied and removed by somebody else
                _force(folder)

    def _listed(self, folder: str) -> tuple[list[str], Files]:
        below: list[str] = []
        files: Files = {}
        try:
            with os.scandir(self._root + folder) as names:
                for found in names:
                    if found.name.startswith("."):
                        continue
                    if found.is_dir():
                        below.append(found.name)
                    else:
                        with contextlib.suppress(FileNotFoundError):
                            files[found.name] = _blob(found.stat())
        except FileNotFoundError:
            self._check_there()
        return below, files

    # -- the folder itself --------------------------------------------------------------------------

    def _prepare(self, *, create: bool) -> None:
        if not self._folder.parent.is_dir():
            raise StoreError(f"the parent of {self._folder} does not exist; create it first")
        if create:
            with contextlib.suppress(FileExistsError):
                make_private_folder(self._folder)
        if not self._folder.is_dir():
            raise StoreError(f"{self._folder} is not a folder; there are no outputs here")
        if self._marker.exists():
            if (found := self._marker.read_bytes()) != _FORMAT:
                raise StoreError(
                    f"{self._folder} is of a kind this Mainstay does not know ({found[:80]!r}): upgrade it"
                )
        elif create or _has_folders(self._folder):
            new = self._folder / f".outputs.{os.urandom(4).hex()}"
            new.write_bytes(_FORMAT)
            _force_file(new)
            new.replace(self._marker)
            _force(str(self._folder))
        else:
            raise StoreError(f"{self._folder} is empty; is its disk mounted, and is this the right folder?")
        report_exposed(f"the outputs in {self._folder}", [self._folder])
        with contextlib.suppress(OSError):  # whoever only reads needs none
            self._aside.mkdir(exist_ok=True)
            self._sweep()

    def _sweep(self) -> None:
        for name in os.listdir(self._aside):
            path = self._aside / name
            with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
                if time.time() - os.fstat(file.fileno()).st_mtime > _YOUNG_S:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()

    def _check_there(self) -> None:
        if not self._marker.exists():
            raise StoreUnavailable(
                f"{self._folder} is not what it was: {self._marker.name} is missing. Is its disk mounted?"
            )

    def _told(self, error: OSError) -> StoreError:
        what = f"{error.filename or self._folder}: {error.strerror}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreFull(f"no space left for {self._place} ({what}). Free space, then try again")
        if error.errno == errno.EROFS:
            return StoreReadOnly(f"{self._place} cannot be written ({what}); mount it for writing")
        if error.errno in (errno.EACCES, errno.EPERM):
            return StoreDenied(f"{self._place} denies it ({what}); check owner and permissions")
        return StoreUnavailable(f"{self._place} does not answer as a folder should ({what}); try again")


def _blob(found: os.stat_result) -> Blob:
    return Blob(found.st_size, f"{found.st_ino:x}-{found.st_mtime_ns:x}")


def _inside(folder: str) -> Files:
    files: Files = {}
    with os.scandir(folder) as names:
        for name in names:
            try:
                found = name.stat()
            except FileNotFoundError:  # removed meanwhile
                continue
            if stat.S_ISREG(found.st_mode):
                files[name.name] = _blob(found)
    return files


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def _digest(path: str) -> Digest:
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _SMALL:
            return Digest(size, hashlib.file_digest(file, "sha256").hexdigest())
        body = file.readall()
        return Digest(len(body), hashlib.sha256(body).hexdigest())


def _has_folders(folder: Path) -> bool:
    return any(entry.is_dir() and not entry.name.startswith(".") for entry in _entries(folder))


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as names:
        yield from names


def _force_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _force(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


async def open_folder(url: str, *, options: dict[str, str]) -> Blobs:
    """Open `file:///srv/outputs` or `file:relative`. Options: `create=no` (it has to be there), `sync=off`."""
    check_options(options, ["create", "sync"])
    parts = split_url(url)
    path = unquote(parts.path)
    if parts.netloc or not path.strip("/") or parts.fragment:
        raise InvalidInput("outputs", f"{shown_url(url)!r} names no folder; write file:///srv/outputs, or file:outputs")
    create, sync = is_on(options, "create", default="on"), is_on(options, "sync", default="on")
    return await asyncio.to_thread(FolderBlobs, Path(path), place=shown_url(url), create=create, sync=sync)
