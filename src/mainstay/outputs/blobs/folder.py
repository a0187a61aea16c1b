"""Files in a folder of this machine, or of a share.

A file is written as a draft (in `.new`), forced to the disk and renamed, and its name is forced to the disk, too. With
`sync=off` neither is forced: faster, but a crash of the machine loses the last seconds. Drafts of killed writers are
removed when the folder is opened: a live writer holds a lock on its draft.

`.outputs` is the marker of the folder (`storage.folders`).
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
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...errors import PathBlocked, StoreError, StoreUnavailable
from ...storage import DataFolder, Threads, check_key, check_options, folder_in, is_on, report_exposed, shown_url
from . import Blob, Blobs, Files, OutputFile

T = TypeVar("T")
A = TypeVar("A")

_FORMAT = b"mainstay outputs 1\n"
_THREADS = 4
#: paths for one thread at a time: few enough to share the work, enough to be worth the switch
_PIECE = 200
#: a younger draft may not be locked yet
_YOUNG_S = 60.0
_TRIES = 5
_MOVE_IT = "move it away or remove it, then resume the batch or run the unit again"
#: files up to this size are read at once: the buffer for bigger ones takes longer to create than a small file to read
_SMALL = 128 * 1024
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
#: errors of a write if something else is in its place: not an outage, because waiting does not help
_BLOCKED = (errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ELOOP)


class FolderBlobs:
    """Open it with `open_outputs("file:///srv/outputs")`. The folder is created if its parent exists."""

    def __init__(self, path: Path, *, place: str = "", create: bool = True, sync: bool = True) -> None:
        # the folders of units are not remembered: they are used once or twice, and there are many
        self._folder = DataFolder(path, place=place, marker=".outputs", content=_FORMAT, sync=sync, remembered_depth=3)
        self._root = f"{self._folder.path}/"
        self._drafts = self._folder.path / ".new"
        self._sync = sync
        try:
            self._prepare(create=create)
        except OSError as error:
            raise self._folder.translated(error) from error
        self._threads = Threads(_THREADS, place=self.place)

    @property
    def place(self) -> str:
        return self._folder.place

    async def write(self, path: str, source: bytes | Path) -> Blob:
        check_key(path)
        return await self._run(lambda: self._write(self._root + path, source))

    async def read(self, paths: Sequence[str]) -> list[bytes | StoreError | None]:
        return await self._each(paths, _read)

    async def digests(self, paths: Sequence[str]) -> list[OutputFile | StoreError | None]:
        return await self._each(paths, _digest)

    async def save(self, path: str, target: Path) -> OutputFile | None:
        def run() -> OutputFile | None:
            with contextlib.ExitStack() as files:
                try:
                    source = files.enter_context(open(self._root + path, "rb"))
                except OSError as error:
                    if error.errno not in _ABSENT:
                        raise
                    self._folder.check_mounted()
                    return None
                digest, size = hashlib.sha256(), 0
                with target.open("wb") as copy:
                    while piece := source.read(1 << 20):
                        digest.update(piece)
                        size += copy.write(piece)
                return OutputFile(size, digest.hexdigest())

        return await self._run(run)

    async def find(self, folders: Sequence[str]) -> list[Files | StoreError]:
        listings = await self._each(folders, _files_in)
        return [{} if files is None else files for files in listings]

    async def walk(self, prefix: str) -> AsyncIterator[tuple[str, Files]]:
        """One folder at a time: a slow caller keeps nothing open."""
        todo = [prefix.rpartition("/")[0]]
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
                self._folder.force(folder)
                self._folder.remove_if_empty(folder)

        await self._run(run)

    async def close(self) -> None:
        await self._threads.close()

    # -- threads ----------------------------------------------------------------------------------

    async def _run(self, work: Callable[[], T]) -> T:
        def run() -> T:
            try:
                return work()
            except OSError as error:
                raise self._folder.translated(error) from error

        return await self._threads.run(run)

    async def _each(self, paths: Sequence[str], read: Callable[[str], A | None]) -> list[A | StoreError | None]:
        def piece(start: int) -> list[A | StoreError | None]:
            results = [self._result(self._root + path, read) for path in paths[start : start + _PIECE]]
            if any(result is None for result in results):
                try:
                    self._folder.check_mounted()
                except StoreError as outage:
                    return [outage if result is None else result for result in results]
            return results

        pieces = [self._run(partial(piece, start)) for start in range(0, len(paths), _PIECE)]
        return [result for results in await asyncio.gather(*pieces) for result in results]

    def _result(self, path: str, read: Callable[[str], A | None]) -> A | StoreError | None:
        try:
            return read(path)
        except OSError as error:
            return None if error.errno in _ABSENT else self._folder.translated(error)

    # -- files ------------------------------------------------------------------------------------

    def _write(self, path: str, source: bytes | Path) -> Blob:
        """Return only when neither the file nor its name can be lost."""
        self._folder.check_mounted()
        draft = self._drafts / os.urandom(8).hex()
        try:
            with draft.open("xb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if isinstance(source, bytes):
                    file.write(source)
                else:
                    with source.open("rb") as original:
                        shutil.copyfileobj(original, file, 1 << 20)
                file.flush()
                if self._sync:
                    os.fsync(file.fileno())
                blob = _blob(os.fstat(file.fileno()))
                self._rename(draft, path)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
        self._folder.force(os.path.dirname(path))
        return blob

    def _rename(self, draft: Path, path: str) -> None:
        folder = os.path.dirname(path)
        for _ in range(_TRIES):
            try:
                self._folder.make_subfolder(folder)
                draft.replace(path)
            except FileNotFoundError:  # another process removed the folder, which was empty
                self._folder.forget_subfolders()
            except OSError as error:
                if error.errno not in _BLOCKED:
                    raise
                self._folder.forget_subfolders()
                self._clear_way(path)
            else:
                return
        self._clear_way(path)
        raise StoreUnavailable(f"{folder} is created and removed by others all the time; try again")

    def _clear_way(self, path: str) -> None:
        """Remove an obstacle that contains nothing: an empty folder in place of the file, an empty file in place of one
        of its folders. Anything else is data of an unknown owner, so a person has to decide."""
        above = len(str(self._folder.path))
        parents = [path[:at] for at in range(above + 1, len(path)) if path[at] == "/"]
        for parent in parents:
            if os.path.isdir(parent) or not os.path.lexists(parent):
                continue
            found = os.lstat(parent)
            if stat.S_ISREG(found.st_mode) and found.st_size == 0:
                os.unlink(parent)
                return
            kind = "a link that leads nowhere" if stat.S_ISLNK(found.st_mode) else "not a folder"
            raise PathBlocked(f"{parent} is {kind}, so {path} cannot be written; {_MOVE_IT}")
        if os.path.isdir(path) and not os.path.islink(path):
            try:
                os.rmdir(path)
            except OSError:
                raise PathBlocked(f"{path} is a folder with something in it, not a file; {_MOVE_IT}") from None

    def _listed(self, folder: str) -> tuple[list[str], Files]:
        """The names of the subfolders, and the files."""
        below: list[str] = []
        files: Files = {}
        try:
            with os.scandir(self._root + folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir():
                        below.append(entry.name)
                    else:
                        with contextlib.suppress(FileNotFoundError):
                            files[entry.name] = _blob(entry.stat())
        except FileNotFoundError:
            self._folder.check_mounted()
        return below, files

    # -- the folder itself --------------------------------------------------------------------------

    def _prepare(self, *, create: bool) -> None:
        folder, path = self._folder, self._folder.path
        if create:
            folder.create()
        else:
            folder.check_parent()
        if not path.is_dir():
            raise StoreError(f"{path} is not a folder; there are no outputs here")
        if folder.marker.exists():
            folder.check_marker()
        elif create or self._listed("")[0]:
            folder.write_marker(path / f".outputs.{os.urandom(4).hex()}")
        else:
            raise StoreError(f"{path} is empty; is its disk mounted, and is this the right folder?")
        report_exposed(f"the outputs in {path}", [path])
        with contextlib.suppress(OSError):  # a reader needs no drafts
            self._drafts.mkdir(exist_ok=True)
            self._sweep()

    def _sweep(self) -> None:
        """Remove the drafts of killed writers."""
        for name in os.listdir(self._drafts):
            path = self._drafts / name
            with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
                if time.time() - os.fstat(file.fileno()).st_mtime > _YOUNG_S:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()


def _blob(found: os.stat_result) -> Blob:
    return Blob(found.st_size, f"{found.st_ino:x}-{found.st_mtime_ns:x}")


def _files_in(folder: str) -> Files:
    files: Files = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                found = entry.stat()
            except FileNotFoundError:  # removed since it was listed
                continue
            if stat.S_ISREG(found.st_mode):
                files[entry.name] = _blob(found)
    return files


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def _digest(path: str) -> OutputFile:
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _SMALL:
            return OutputFile(size, hashlib.file_digest(file, "sha256").hexdigest())
        body = file.readall()
        return OutputFile(len(body), hashlib.sha256(body).hexdigest())


async def open_folder(url: str, *, options: dict[str, str]) -> Blobs:
    """Open `file:///srv/outputs` or `file:relative`. Options: `create=no` (it has to exist), `sync=off`."""
    check_options(options, ["create", "sync"])
    path = folder_in(url, field="outputs", example="outputs")
    create, sync = is_on(options, "create", default="on"), is_on(options, "sync", default="on")
    return await asyncio.to_thread(FolderBlobs, path, place=shown_url(url), create=create, sync=sync)
