"""Versioned values as files of a folder, for the processes of one machine (or of several that share its locks).

A value is written beside its place, forced to the disk and renamed, so a reader sees the old one or the new one and
needs no lock. Writers of one key take turns by a lock of the system's, one of 256 by the key, which ends with its
holder. In the folder:

- `.mainstay` says what it is. Where it is missing the folder is not mounted, or gone: an outage, not "no such key".
- `.locks/xx` are locked, and empty. `.new/xx` is being written by whoever holds that lock. What a killed writer left
  there is overwritten by the next, or removed when the store is opened.
- the rest are values: `names` says where. A value's first line has its version and its length.

Folders stay when their last value goes.
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
from urllib.parse import parse_qsl, unquote

from ...errors import (
    InvalidInput,
    RowDamaged,
    SchemaTooNew,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
)
from ...storage.keys import check_key
from ...storage.options import check_options, duration_of
from ...storage.private_files import make_private_folder, report_exposed
from ...storage.urls import shown_url, split_url
from .file_names import keys_in, path_of
from .input_check import check_listing, check_value, new_version
from .port import Versioned, VersionedStore, WriteUnsure
from .threads import Threads

_FORMAT = b"mainstay versioned 1\n"
_HEAD = b"mainstay-value"
#: more than a head has
_HEAD_BYTES = 100
_LONGEST_PAUSE_S = 0.01
#: in a folder that is new, or was left before its marker was written; the last stands at the top of a disk
_HARMLESS = frozenset({".locks", ".new", "lost+found"})


class FileVersioned:
    """Open it with `open_versioned("file:///srv/jobs")`. The folder is made if its parent is there."""

    def __init__(self, folder: Path, *, place: str = "", busy_timeout_s: float = 10.0) -> None:
        self._folder = folder.absolute()
        self._place = place or f"file://{self._folder}"
        self._marker = self._folder / ".mainstay"
        self._locks = self._folder / ".locks"
        self._new = self._folder / ".new"
        self._busy_timeout_s = busy_timeout_s
        #: folders whose own names are known to be on the disk
        self._lasting: set[Path] = set()
        with self._in_our_words():
            self._prepare()
        # apart, so that writers who wait for a lock keep no reader waiting
        self._readers = Threads(4, place=self._place)
        self._writers = Threads(8, place=self._place)

    @property
    def place(self) -> str:
        return self._place

    async def get(self, key: str) -> Versioned | None:
        path = self._path(key)
        return await self._readers.run(lambda: self._get(path))

    async def put(self, key: str, value: bytes, version: str) -> str | None:
        path = self._path(key)
        check_value(value)

        return await self._change(key, value, lambda: self._version(path) == version)

    async def create_if_absent(self, key: str, value: bytes) -> str | None:
        path = self._path(key)
        check_value(value)

        return await self._change(key, value, lambda: not path.exists())

    async def delete(self, key: str, version: str) -> bool:
        path = self._path(key)

        def run() -> bool:
            with self._in_our_words(), self._locked(_shard(key)):
                if self._version(path) != version:
                    return False
                path.unlink()
                _force(path.parent)
                return True

        return await self._writers.run(run)

    async def list_keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        check_listing(prefix, after, limit)

        def run() -> list[str]:
            with self._in_our_words():
                found = list(islice(keys_in(self._folder, prefix=prefix, after=after), limit))
                self._check_there()
                return found

        return await self._readers.run(run)

    async def close(self) -> None:
        await self._writers.close()
        await self._readers.close()

    # -- values -------------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        return self._folder.joinpath(*path_of(check_key(key)))

    def _get(self, path: Path) -> Versioned | None:
        with self._in_our_words():
            try:
                head, _, value = path.read_bytes().partition(b"\n")
            except FileNotFoundError:
                self._check_there()
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
            return None  # whoever asks holds a lock of this folder, so it is there

    async def _change(self, key: str, value: bytes, allowed: Callable[[], bool]) -> str | None:
        own = new_version()

        def run() -> str | None:
            with self._in_our_words(), self._locked(_shard(key)):
                return self._write(self._path(key), _shard(key), value, own) if allowed() else None

        async def mine() -> str | None:
            found = await self.get(key)
            return own if found and found.version == own else None

        try:
            return await self._writers.run(run)
        except StoreUnavailable as error:
            raise WriteUnsure(str(error), mine) from error

    def _write(self, path: Path, shard: str, value: bytes, version: str) -> str:
        """Answer only when neither the value nor its name can be lost."""
        new = self._new / shard
        try:
            with new.open("wb") as file:
                file.write(b"%b 1 %b %d\n" % (_HEAD, version.encode(), len(value)))
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
            self._make_folder(path.parent)
            try:
                new.replace(path)
            except FileNotFoundError:  # somebody has tidied up by hand
                self._lasting.clear()
                self._make_folder(path.parent)
                new.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        _force(path.parent)
        return version

    def _make_folder(self, folder: Path) -> None:
        """Also where it is there: whoever made it may not have come as far as forcing its name to the disk."""
        if folder == self._folder or folder in self._lasting:
            return
        self._make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        _force(folder.parent)
        self._lasting.add(folder)

    # -- the folder itself ----------------------------------------------------------------------

    def _prepare(self) -> None:
        if not self._folder.parent.is_dir():
            raise StoreError(f"the parent of {self._folder} does not exist; create it first")
        with contextlib.suppress(FileExistsError):
            make_private_folder(self._folder)
        if not self._folder.is_dir():
            raise StoreError(f"{self._folder} is not a folder; name one")
        if not self._marker.exists() and set(os.listdir(self._folder)) - _HARMLESS - {self._marker.name}:
            raise StoreError(
                f"{self._folder} is not empty and not a versioned store of Mainstay; choose another folder"
            )
        report_exposed(f"the store {self._folder}", [self._folder])
        self._locks.mkdir(exist_ok=True)
        self._new.mkdir(exist_ok=True)
        with self._locked("format"):
            if not self._marker.exists():
                new = self._new / "format"
                with new.open("wb") as file:
                    file.write(_FORMAT)
                    file.flush()
                    os.fsync(file.fileno())
                new.replace(self._marker)
                _force(self._folder)
                _force(self._folder.parent)
            if (found := self._marker.read_bytes()) != _FORMAT:
                raise SchemaTooNew(
                    f"{self._folder} is of a kind this Mainstay does not know ({found[:80]!r}): "
                    "upgrade Mainstay in this environment; nothing was changed"
                )
        self._sweep()

    def _sweep(self) -> None:
        """Remove what killed writers left; what is locked is being written."""
        for name in os.listdir(self._new):
            with contextlib.suppress(StoreLocked, FileNotFoundError), self._locked(name, timeout_s=0):
                (self._new / name).unlink()

    def _check_there(self) -> None:
        if not self._marker.exists():
            raise StoreUnavailable(
                f"{self._folder} is not the store it was: {self._marker.name} is missing. Is its disk mounted?"
            )

    @contextlib.contextmanager
    def _locked(self, name: str, *, timeout_s: float | None = None) -> Iterator[None]:
        limit_s = self._busy_timeout_s if timeout_s is None else timeout_s
        lock = os.open(self._locks / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._wait_for(lock, name, limit_s)
            try:
                yield
            finally:
                # closing would do, were there no child that was forked meanwhile and has it open, too
                fcntl.flock(lock, fcntl.LOCK_UN)
        finally:
            os.close(lock)

    def _wait_for(self, lock: int, name: str, limit_s: float) -> None:
        # flock cannot time out, and a stopped process must not stop the others for good
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
    def _in_our_words(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"{error.filename or self._folder}: {error.strerror}"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFull(f"no space left for {self._place} ({what}). Free space, then try again") from error
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise StoreReadOnly(
                    f"{self._place} cannot be read or written ({what}); check owner and permissions"
                ) from error
            if error.errno == errno.ENOENT:
                self._check_there()
            # a disk that fails or a share that does not answer: nobody knows what was done
            raise StoreUnavailable(f"{self._place} does not answer as a folder should ({what})") from error


def _shard(key: str) -> str:
    return f"{zlib.crc32(key.encode()) & 0xFF:02x}"


def _force(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read_head(head: bytes, path: Path) -> tuple[str, int]:
    match head.split(b" "):
        case [mark, b"1", version, length] if mark == _HEAD and length.isdigit():
            return version.decode("ascii", "replace"), int(length)
    raise _damaged(path, "its first line is not one of ours")


def _damaged(path: Path, why: str) -> RowDamaged:
    return RowDamaged(
        f"{path} is not as it was written ({why}). It was left as it is: restore this file from a backup, or remove it"
    )


async def prepare(url: str) -> list[str]:
    """Make the folder of a URL if there is none: what was done."""
    parts = split_url(url)
    path = Path(unquote(parts.path))
    there = (path / ".mainstay").exists()
    store = await open_file(url, options=dict(parse_qsl(parts.query, keep_blank_values=True)))
    await store.close()
    return [] if there else [f"made the folder {path}"]


async def open_file(url: str, *, options: dict[str, str]) -> VersionedStore:
    """Open `file:///srv/jobs` or `file:relative`. Option: `busy_timeout` (how long to wait for other writers, 10s)."""
    check_options(options, ["busy_timeout"])
    parts = split_url(url)
    path = unquote(parts.path)
    if parts.netloc or not path.strip("/") or parts.fragment:
        raise InvalidInput("store", f"{shown_url(url)!r} names no folder; write file:///srv/jobs, or file:jobs")
    busy_timeout_s = duration_of(options, "busy_timeout", "10s")
    return await asyncio.to_thread(FileVersioned, Path(path), place=shown_url(url), busy_timeout_s=busy_timeout_s)
