"""The node's side: a folder with the bundles that the programs of this machine use.

    files/DIGEST            one file of a bundle, checked; shared by the bundles that have it
    drafts/DIGEST           the packed form of a file that is being fetched; a killed fetch goes on where it ended
    bundles/DIGEST/         a bundle as a folder; its files are hard links to `files`
    bundles/DIGEST.lock     held (shared) by every process that uses the bundle
    lock                    held by the process that fetches, repairs or prunes

A file gets its name when it is complete, checked and on the disk, and a bundle when all of its files are: a process
that is killed leaves nothing that counts. The locks are `flock`s, so they end with their process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

import msgspec

from ...clock import Clock, SystemClock
from ...errors import BundleCorrupt, BundleMissing, InvalidInput
from ...storage import force_names
from .locks import FileLock, try_lock, wait_for_lock
from .manifest import MANIFEST_NAME, MB, BundleFile, BundleLimits, BundleManifest, check_digest, read_manifest
from .messages import PART_BYTES, BundlePart
from .packed import file_digest, unpack_file

BundleFetch = Callable[[str, int, int], Awaitable[BundlePart]]
"""digest, offset, length -> a part of the packed form: `BundleClient.fetch`"""


class BundleInUse:
    """A bundle on this machine's disk. It is not pruned until `release` or the end of the process."""

    def __init__(self, folder: Path, manifest: BundleManifest, lock: FileLock) -> None:
        self.folder = folder
        self.manifest = manifest
        self._lock = lock

    def put_first(self) -> None:
        """Let this process import from the bundle before anything else."""
        place = str(self.folder)
        if place in sys.path:
            sys.path.remove(place)
        sys.path.insert(0, place)

    def release(self) -> None:
        """Allow that the bundle is pruned. A second call does nothing."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class PruneResult(msgspec.Struct, frozen=True, kw_only=True):
    """What `BundleCache.prune` did."""

    removed: tuple[str, ...]
    """digests of bundles"""
    kept_bytes: int
    """of the files that are left"""


class BundleCache:
    """Bundles in a folder of this machine; several processes may use one folder.

    `fetch` is called for what is missing. `use` fetches, checks and locks a bundle:

        cache = BundleCache(Path("/var/lib/mainstay/bundles"), client.fetch)
        bundle = await cache.use(digest)
        bundle.put_first()
    """

    def __init__(
        self, folder: Path, fetch: BundleFetch, *, limits: BundleLimits | None = None, clock: Clock | None = None
    ) -> None:
        self._folder = folder
        self._fetch = fetch
        self._limits = limits or BundleLimits()
        self._clock = clock or SystemClock()
        self._files = folder / "files"
        self._drafts = folder / "drafts"
        self._bundles = folder / "bundles"

    async def use(self, digest: str) -> BundleInUse:
        """A bundle that is complete and intact. Its files are checked every time; what is missing or damaged is
        fetched. A file that arrives damaged is fetched once more, then `BundleCorrupt` names it."""
        check_digest(digest)
        await asyncio.to_thread(self._prepare)
        ready = await asyncio.to_thread(self._ready, digest)
        if ready is not None:
            return ready
        with await wait_for_lock(self._folder / "lock"):
            # another process may have fetched it meanwhile
            ready = await asyncio.to_thread(self._ready, digest)
            if ready is not None:
                return ready
            manifest = await self._manifest(digest)
            for file in {file.sha256: file for file in manifest.files}.values():
                await self._file(file)
            await asyncio.to_thread(self._build, manifest)
            # only prune and a repair take it exclusively, and both need the lock that is held here
            lock = await wait_for_lock(self._lock_of(digest), shared=True)
            self._touch(digest)
            return BundleInUse(self._bundles / digest, manifest, lock)

    async def prune(self, *, most_bytes: int = 2048 * MB, oldest_s: float = 30 * 86_400.0) -> PruneResult:
        """Remove bundles that have not been used for `oldest_s`, then the least recently used ones until the files have
        at most `most_bytes`. A bundle in use stays, and so do its files."""
        if most_bytes < 0 or oldest_s < 0:
            raise InvalidInput("most_bytes" if most_bytes < 0 else "oldest_s", "it is below 0")
        await asyncio.to_thread(self._prepare)
        with await wait_for_lock(self._folder / "lock"):
            return await asyncio.to_thread(self._prune, most_bytes, oldest_s)

    # -- reading ----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        for folder in (self._folder, self._files, self._drafts, self._bundles):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _lock_of(self, digest: str) -> Path:
        return self._bundles / f"{digest}.lock"

    def _touch(self, digest: str) -> None:
        at = self._clock.now_ms() / 1000
        os.utime(self._lock_of(digest), (at, at))

    def _ready(self, digest: str) -> BundleInUse | None:
        """The bundle, if it is here and intact."""
        folder = self._bundles / digest
        if not folder.is_dir():
            return None
        lock = try_lock(self._lock_of(digest), shared=True)
        if lock is None:
            return None
        try:
            manifest = read_manifest(digest, (folder / MANIFEST_NAME).read_bytes(), self._limits)
            if all(_is_intact(folder / file.path, file) for file in manifest.files):
                self._touch(digest)
                return BundleInUse(folder, manifest, lock)
        except (FileNotFoundError, BundleCorrupt):
            pass
        except BaseException:
            lock.release()
            raise
        lock.release()
        return None

    # -- fetching, under the lock -----------------------------------------------------------------

    async def _manifest(self, digest: str) -> BundleManifest:
        entry = BundleFile(path="manifest", size=0, sha256=digest)
        small = msgspec.structs.replace(self._limits, data_bytes=self._limits.manifest_bytes)
        path = await self._file(entry, size=None, limits=small)
        return read_manifest(digest, await asyncio.to_thread(path.read_bytes), self._limits)

    async def _file(self, file: BundleFile, *, size: int | None = -1, limits: BundleLimits | None = None) -> Path:
        """A checked file in `files`, fetched if needed."""
        limits = limits or self._limits
        wanted = file.size if size == -1 else size
        path = self._files / file.sha256
        if await asyncio.to_thread(_has_digest, path, file.sha256):
            return path
        draft = self._drafts / file.sha256
        try:
            await self._fetched(file, wanted, limits, draft, path)
        except BundleMissing:
            raise BundleMissing(file.sha256, path=file.path) from None
        except BundleCorrupt:
            # damaged on its way, or a draft of other bytes: once more, from the beginning
            draft.unlink(missing_ok=True)
            try:
                await self._fetched(file, wanted, limits, draft, path)
            except BundleCorrupt as error:
                draft.unlink(missing_ok=True)
                raise BundleCorrupt(file.sha256, error.why, path=file.path) from None
        return path

    async def _fetched(self, file: BundleFile, size: int | None, limits: BundleLimits, draft: Path, path: Path) -> None:
        most = (limits.data_bytes if size is None else size) + PART_BYTES  # of the packed form, with its frame
        with draft.open("ab") as packed:
            while True:
                have = packed.tell()
                part = await self._fetch(file.sha256, have, PART_BYTES)
                if not 0 < part.size <= most or have > part.size or len(part.data) > part.size - have:
                    raise BundleCorrupt(file.sha256, f"its packed form has {part.size} bytes", path=file.path)
                await asyncio.to_thread(packed.write, part.data)
                if packed.tell() == part.size:
                    break
                if not part.data:
                    raise BundleCorrupt(file.sha256, f"it ends after {have} of {part.size} bytes", path=file.path)
        await asyncio.to_thread(self._unpack, file, size, limits, draft, path)

    def _unpack(self, file: BundleFile, size: int | None, limits: BundleLimits, draft: Path, path: Path) -> None:
        unpacked = draft.with_suffix(".content")
        try:
            with draft.open("rb") as packed, unpacked.open("wb") as content:
                length = draft.stat().st_size
                unpack_file(packed, length, content, digest=file.sha256, size=size, limits=limits, path=file.path)
                content.flush()
                os.fchmod(content.fileno(), 0o400)  # a program that writes to it would damage other bundles
                os.fsync(content.fileno())
            unpacked.replace(path)
        finally:
            unpacked.unlink(missing_ok=True)
        force_names(self._files)
        draft.unlink()

    def _build(self, manifest: BundleManifest) -> None:
        """Make the folder of a bundle from its files, or repair it."""
        folder = self._bundles / manifest.digest
        draft = self._drafts / f"{manifest.digest}.folder"
        shutil.rmtree(draft, ignore_errors=True)
        below = {draft}
        for file in manifest.files:
            place = draft / file.path
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            below.update(one for one in place.parents if one.is_relative_to(draft))
            _link(self._files / file.sha256, place)
        draft.mkdir(mode=0o700, exist_ok=True)
        _link(self._files / manifest.digest, draft / MANIFEST_NAME)
        for one in below:
            force_names(one)
        if folder.is_dir():  # a process may use it: replace file by file
            for file in manifest.files:
                (folder / file.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                (draft / file.path).replace(folder / file.path)
            (draft / MANIFEST_NAME).replace(folder / MANIFEST_NAME)
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.replace(folder)
        force_names(self._bundles)

    # -- pruning, under the lock ------------------------------------------------------------------

    def _prune(self, most_bytes: int, oldest_s: float) -> PruneResult:
        now_s = self._clock.now_ms() / 1000
        self._remove_unused()
        used = [(lock.stat().st_mtime, lock.stem) for lock in self._bundles.glob("*.lock")]
        removed: list[str] = []
        for last, digest in sorted(used):
            if (now_s - last > oldest_s or self._bytes() > most_bytes) and self._remove(digest):
                removed.append(digest)
                self._remove_unused()
        for draft in self._drafts.iterdir():  # of fetches that were killed: the lock is held here
            if draft.is_dir():
                shutil.rmtree(draft, ignore_errors=True)
            elif now_s - draft.stat().st_mtime > oldest_s or self._bytes() > most_bytes:
                draft.unlink(missing_ok=True)
        return PruneResult(removed=tuple(removed), kept_bytes=self._bytes())

    def _remove(self, digest: str) -> bool:
        path = self._lock_of(digest)
        lock = try_lock(path)
        if lock is None:
            return False
        with lock:
            # renamed first, so that a killed prune leaves no half of a bundle under its name
            draft = self._drafts / f"{digest}.folder"
            shutil.rmtree(draft, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                (self._bundles / digest).rename(draft)
            shutil.rmtree(draft, ignore_errors=True)
            path.unlink(missing_ok=True)
        return True

    def _remove_unused(self) -> None:
        for file in self._files.iterdir():
            if file.stat().st_nlink == 1:
                file.unlink()

    def _bytes(self) -> int:
        return sum(file.stat().st_size for folder in (self._files, self._drafts) for file in folder.iterdir())


def _is_intact(path: Path, file: BundleFile) -> bool:
    try:
        return path.lstat().st_size == file.size and _has_digest(path, file.sha256)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _has_digest(path: Path, digest: str) -> bool:
    try:
        return not path.is_symlink() and file_digest(path)[1] == digest
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False


def _link(source: Path, place: Path) -> None:
    try:
        os.link(source, place)
    except FileExistsError:
        raise
    except OSError:  # a disk without hard links
        shutil.copy2(source, place)
        with place.open("rb") as copy:
            os.fsync(copy.fileno())


__all__ = ["BundleCache", "BundleFetch", "BundleInUse", "PruneResult"]
