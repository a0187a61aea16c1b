"""Versioned values as files of a folder, for the processes of one machine (or of several that share its locks).

A value is written beside its place, forced to the disk and renamed, so a reader sees the old value or the new one and
needs no lock. Writers of one key take turns by a lock of the operating system, one of 256 by the key, which ends with
its holder. In the folder:

- `.mainstay` is the marker (`storage.folders`).
- `.locks/xx` are lock files, and empty. `.new/xx` is the draft of the writer that holds that lock. A draft that a
  killed writer left is overwritten by the next writer, or removed when the store is opened.
- the rest are values: `file_names` maps keys to paths. The first line of a file has the version and the length.

Subfolders stay when their last value is deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from ...errors import RowDamaged, StoreError, StoreLocked, StoreReadOnly, StoreUnavailable
from ...storage import (
    DataFolder,
    Threads,
    check_key,
    check_options,
    duration_of,
    folder_in,
    force_names,
    options_in,
    report_exposed,
    shown_url,
)
from .file_names import keys_in, path_of
from .input_check import check_listing, check_value, new_version
from .port import Versioned, VersionedStore, WriteUnsure

MARKER = ".mainstay"
_FORMAT = b"mainstay versioned 1\n"
_HEAD = b"mainstay-value"
#: more than the length of any first line
_HEAD_BYTES = 100
_LONGEST_PAUSE_S = 0.01
#: names in a new folder, or in one whose creator died before it wrote the marker; the last is at the top of a disk
_HARMLESS = frozenset({".locks", ".new", "lost+found", MARKER})


class FileVersioned:
    """Open it with `open_versioned("file:///srv/jobs")`. The folder is created if its parent exists."""

    def __init__(
        self,
        path: Path,
        *,
        place: str = "",
        busy_timeout_s: float = 10.0,
        versions: Callable[[], str] = new_version,
    ) -> None:
        self._new_version = versions
        # workers wait for a store that is read-only, and give up on one that denies access
        self._folder = DataFolder(path, place=place, marker=MARKER, content=_FORMAT, denied=StoreReadOnly)
        self._locks = self._folder.path / ".locks"
        self._drafts = self._folder.path / ".new"
        self._busy_timeout_s = busy_timeout_s
        with self._translated_errors():
            self._prepare()
        # separate, so that writers that wait for a lock delay no reader
        self._readers = Threads(4, place=self.place)
        self._writers = Threads(8, place=self.place)

    @property
    def place(self) -> str:
        return self._folder.place

    async def get(self, key: str) -> Versioned | None:
        path = self._path(key)
        return await self._readers.run(lambda: self._get(path))

    async def put(self, key: str, value: bytes, version: str) -> str | None:
        path = self._path(key)
        return await self._change(key, value, lambda: self._version(path) == version)

    async def create_if_absent(self, key: str, value: bytes) -> str | None:
        path = self._path(key)
        return await self._change(key, value, lambda: not path.exists())

    async def delete(self, key: str, version: str) -> bool:
        path = self._path(key)

        def run() -> bool:
            with self._translated_errors(), self._locked(_shard(key)):
                if self._version(path) != version:
                    return False
                path.unlink()
                force_names(path.parent)
                return True

        return await self._writers.run(run)

    async def list_keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        check_listing(prefix, after, limit)

        def run() -> list[str]:
            with self._translated_errors():
                keys = list(islice(keys_in(self._folder.path, prefix=prefix, after=after), limit))
                self._folder.check_mounted()
                return keys

        return await self._readers.run(run)

    async def close(self) -> None:
        await self._writers.close()
        await self._readers.close()

    # -- values -------------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        return self._folder.path.joinpath(*path_of(check_key(key)))

    def _get(self, path: Path) -> Versioned | None:
        with self._translated_errors():
            try:
                head, _, value = path.read_bytes().partition(b"\n")
            except FileNotFoundError:
                self._folder.check_mounted()
                return None
            version, length = _read_head(head, path)
            if len(value) != length:
                raise _damaged(path, f"it has {len(value)} bytes of {length}")
            return Versioned(value, version)

    def _version(self, path: Path) -> str | None:
        try:
            with path.open("rb") as file:
                return _read_head(file.readline(_HEAD_BYTES).rstrip(b"\n"), path)[0]
        except FileNotFoundError:
            return None  # the caller holds a lock in this folder, so the folder is mounted

    async def _change(self, key: str, value: bytes, allowed: Callable[[], bool]) -> str | None:
        check_value(value)
        own = self._new_version()

        def run() -> str | None:
            with self._translated_errors(), self._locked(_shard(key)):
                return self._write(self._path(key), _shard(key), value, own) if allowed() else None

        async def mine() -> str | None:
            found = await self.get(key)
            return own if found and found.version == own else None

        try:
            return await self._writers.run(run)
        except StoreUnavailable as error:
            raise WriteUnsure(str(error), mine) from error

    def _write(self, path: Path, shard: str, value: bytes, version: str) -> str:
        """Return only when neither the value nor its name can be lost."""
        draft = self._drafts / shard
        try:
            with draft.open("wb") as file:
                file.write(b"%b 1 %b %d\n" % (_HEAD, version.encode(), len(value)))
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
            self._folder.make_subfolder(str(path.parent))
            try:
                draft.replace(path)
            except FileNotFoundError:  # a person has removed empty subfolders
                self._folder.forget_subfolders()
                self._folder.make_subfolder(str(path.parent))
                draft.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
        force_names(path.parent)
        return version

    # -- the folder itself ----------------------------------------------------------------------

    def _prepare(self) -> None:
        folder, path = self._folder, self._folder.path
        folder.create()
        if not path.is_dir():
            raise StoreError(f"{path} is not a folder; name one")
        if not folder.marker.exists() and set(os.listdir(path)) - _HARMLESS:
            raise StoreError(f"{path} is not empty and not a versioned store of Mainstay; choose another folder")
        report_exposed(f"the store {path}", [path])
        self._locks.mkdir(exist_ok=True)
        self._drafts.mkdir(exist_ok=True)
        with self._locked("format"):
            if not folder.marker.exists():
                folder.write_marker(self._drafts / "format")
                force_names(path.parent)
            folder.check_marker()
        self._sweep()

    def _sweep(self) -> None:
        """Remove the drafts of killed writers. A locked draft is being written."""
        for name in os.listdir(self._drafts):
            with contextlib.suppress(StoreLocked, FileNotFoundError), self._locked(name, timeout_s=0):
                (self._drafts / name).unlink()

    @contextlib.contextmanager
    def _locked(self, name: str, *, timeout_s: float | None = None) -> Iterator[None]:
        limit_s = self._busy_timeout_s if timeout_s is None else timeout_s
        lock = os.open(self._locks / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._wait_for(lock, name, limit_s)
            try:
                yield
            finally:
                # closing is not enough: a child that was forked since has the file open, too
                fcntl.flock(lock, fcntl.LOCK_UN)
        finally:
            os.close(lock)

    def _wait_for(self, lock: int, name: str, limit_s: float) -> None:
        # flock has no timeout, and a stopped process must not stop the others for good
        until, pause_s = time.monotonic() + limit_s, 0.0005
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise StoreLocked(
                        f"another process has kept {self._locks / name} locked for more than {limit_s:g} s; "
                        "nothing was written. Look for a stopped or hanging Mainstay process, then try again"
                    ) from None
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            else:
                return

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno == errno.ENOENT:
                self._folder.check_mounted()
            raise self._folder.translated(error) from error


def _shard(key: str) -> str:
    return f"{zlib.crc32(key.encode()) & 0xFF:02x}"


def _read_head(head: bytes, path: Path) -> tuple[str, int]:
    match head.split(b" "):
        case [mark, b"1", version, length] if mark == _HEAD and length.isdigit():
            return version.decode("ascii", "replace"), int(length)
    raise _damaged(path, "its first line was not written by Mainstay")


def _damaged(path: Path, why: str) -> RowDamaged:
    return RowDamaged(
        f"{path} is not as it was written ({why}). It was left as it is: restore this file from a backup, or remove it"
    )


async def prepare(url: str) -> list[str]:
    """Create the folder of a URL if it does not exist. Returns what was done."""
    path = folder_in(url, field="store", example="jobs")
    existed = (path / MARKER).exists()
    store = await open_file(url, options=options_in(url))
    await store.close()
    return [] if existed else [f"created the folder {path}"]


async def open_file(url: str, *, options: dict[str, str]) -> VersionedStore:
    """Open `file:///srv/jobs` or `file:relative`. Option: `busy_timeout` (how long to wait for other writers, 10s)."""
    check_options(options, ["busy_timeout"])
    path = folder_in(url, field="store", example="jobs")
    busy_timeout_s = duration_of(options, "busy_timeout", "10s")
    return await asyncio.to_thread(FileVersioned, path, place=shown_url(url), busy_timeout_s=busy_timeout_s)
