"""The node's side: a folder with the bundles that the programs of this machine use.

    files/DIGEST            one file of a bundle, checked; shared by the bundles that have it
    drafts/DIGEST           a file that is being fetched; a killed fetch goes on after the parts that it has
    drafts/DIGEST.lock      held by the process that fetches this file, or fetches or repairs this bundle
    bundles/DIGEST/         a bundle as a folder that is only read; its files are hard links to `files`
    bundles/DIGEST.lock     held (shared) by every process that uses the bundle
    lock                    held by the process that prunes, and (shared) by those that fetch

A file gets its name when it is complete, checked and on the disk, and a bundle when all of its files are: a process
that is killed leaves nothing that counts. The locks are `flock`s, so they end with their process.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Self

import msgspec

from ..clock import Clock, SystemClock
from ..errors import BundleCorrupt, BundleMissing, InvalidInput
from ..storage import force_names, report_exposed
from .bounded import for_each
from .locks import FileLock, try_lock, wait_for_lock
from .manifest import (
    MANIFEST_NAME,
    MB,
    BundleFile,
    BundleLimits,
    BundleManifest,
    BundlePart,
    check_digest,
    read_manifest,
)
from .packed import file_digest, unpack

log = logging.getLogger("mainstay.cluster")

#: files that are fetched at a time, and parts of each of them
_FILES_AT_ONCE = 4
_PARTS_AT_ONCE = 4

BundleFetch = Callable[[str], Awaitable[bytes]]
"""digest -> the packed form of a part or a manifest: `BundleClient.fetch`"""


class BundleInUse:
    """A bundle on this machine's disk. It is not pruned until `release` or the end of the process."""

    def __init__(self, folder: Path, manifest: BundleManifest, lock: FileLock) -> None:
        self.folder = folder
        self.manifest = manifest
        self._lock = lock

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
        print(bundle.folder)
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
        with await wait_for_lock(self._folder / "lock", shared=True), await wait_for_lock(self._fetch_lock(digest)):
            # another process may have fetched it meanwhile
            ready = await asyncio.to_thread(self._ready, digest)
            if ready is not None:
                return ready
            manifest = await self._manifest(digest)
            files = {file.sha256: file for file in manifest.files}
            await for_each(files.values(), self._file, at_once=_FILES_AT_ONCE)
            await _in_thread(self._build, manifest)
            # only prune takes it exclusively, and needs the lock that is held here
            lock = await wait_for_lock(self._lock_of(digest), shared=True)
            self._touch(digest)
            return BundleInUse(self._bundles / digest, manifest, lock)

    async def prune(self, *, most_bytes: int = 2048 * MB, oldest_s: float = 30 * 86_400.0) -> PruneResult | None:
        """Remove bundles that have not been used for `oldest_s`, then the least recently used ones until the files have
        at most `most_bytes`. A bundle in use stays, and so do its files. None: another process fetches or prunes now,
        which can take long; nothing was done."""
        if most_bytes < 0 or oldest_s < 0:
            raise InvalidInput("most_bytes" if most_bytes < 0 else "oldest_s", "it is below 0")
        await asyncio.to_thread(self._prepare)
        lock = try_lock(self._folder / "lock")
        if lock is None:
            return None
        with lock:
            return await asyncio.to_thread(self._prune, most_bytes, oldest_s)

    # -- reading ----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        for folder in (self._folder, self._files, self._drafts, self._bundles):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        report_exposed(f"the bundles in {self._folder}", [self._folder])

    def _lock_of(self, digest: str) -> Path:
        return self._bundles / f"{digest}.lock"

    def _fetch_lock(self, digest: str) -> Path:
        return self._drafts / f"{digest}.lock"

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
            if _holds_only(folder, manifest) and all(_is_intact(folder / file.path, file) for file in manifest.files):
                self._touch(digest)
                return BundleInUse(folder, manifest, lock)
        except (FileNotFoundError, BundleCorrupt):
            pass
        except BaseException:
            lock.release()
            raise
        lock.release()
        return None

    # fetching, under the lock ----------------------------------------------------------------------

    async def _manifest(self, digest: str) -> BundleManifest:
        body = await self._content(digest, self._limits.manifest_bytes, "")
        manifest = read_manifest(digest, body, self._limits)
        await _in_thread(self._keep_manifest, manifest)
        return manifest

    def _keep_manifest(self, manifest: BundleManifest) -> None:
        draft = self._drafts / manifest.digest
        _make_writable(draft)
        draft.write_bytes(manifest.canonical)
        self._finish(draft, self._files / manifest.digest)

    async def _content(self, digest: str, most: int, path: str) -> bytes:
        """The content of one part. If it arrives damaged it is fetched once more."""
        for last in (False, True):
            try:
                packed = await self._fetch(digest)
                return await asyncio.to_thread(unpack, packed, digest=digest, most=most, limits=self._limits, path=path)
            except BundleMissing:
                raise BundleMissing(digest, path=path) from None
            except BundleCorrupt as error:
                if last:
                    raise BundleCorrupt(digest, error.why, path=path) from None
                log.warning("a part of a bundle arrived damaged and is fetched again digest=%s path=%s", digest, path)
        raise AssertionError("the loop returns or raises")

    async def _file(self, file: BundleFile) -> None:
        """Have a checked file in `files`. Two bundles may have it, and be fetched at the same time."""
        with await wait_for_lock(self._fetch_lock(file.sha256)):
            await self._fetch_file(file)

    async def _fetch_file(self, file: BundleFile) -> None:
        """Fetch the parts that are not in its draft yet."""
        path = self._files / file.sha256
        if await asyncio.to_thread(_has_digest, path, file.sha256):
            return
        if path.exists():
            log.warning("file %s is damaged in the cache and is fetched again digest=%s", file.path, file.sha256)
        draft = self._drafts / file.sha256
        have = await asyncio.to_thread(_begin_draft, draft, file)

        async def place(part: BundlePart) -> None:
            content = await self._content(part.sha256, part.size, file.path)
            # it opens the draft itself: a thread cannot be cancelled, and must not write to a file that was closed here
            await asyncio.to_thread(_write_part, draft, content, part.offset)

        left = file.parts[have:]
        for begin in range(0, len(left), _PARTS_AT_ONCE):
            # in groups, so that a draft has no holes before its end
            await for_each(left[begin : begin + _PARTS_AT_ONCE], place, at_once=_PARTS_AT_ONCE)
        os.truncate(draft, file.size)
        if await asyncio.to_thread(file_digest, draft) != (file.size, file.sha256):
            draft.unlink()
            raise BundleCorrupt(file.sha256, "its parts do not make up the file", path=file.path)
        await _in_thread(self._finish, draft, path)

    def _finish(self, draft: Path, path: Path) -> None:
        with draft.open("rb") as file:
            os.fchmod(file.fileno(), 0o400)  # a program that writes to it would damage other bundles
            os.fsync(file.fileno())
        draft.replace(path)
        force_names(self._files)

    def _build(self, manifest: BundleManifest) -> None:
        """Make the folder of a bundle from its files, or repair it. Nothing can be added to it afterwards."""
        folder = self._bundles / manifest.digest
        draft = self._drafts / f"{manifest.digest}.folder"
        _remove_tree(draft)
        draft.mkdir(mode=0o700)
        for file in manifest.files:
            place = draft / file.path
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _link(self._files / file.sha256, place)
        _link(self._files / manifest.digest, draft / MANIFEST_NAME)
        for below in _folders(draft):
            force_names(below)
        if folder.is_dir():  # a process may use it: replace file by file
            _open_tree(folder)
            _remove_others(folder, {*(file.path for file in manifest.files), MANIFEST_NAME})
            for path in [*(file.path for file in manifest.files), MANIFEST_NAME]:
                (folder / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                (draft / path).replace(folder / path)
            _remove_tree(draft)
        else:
            draft.replace(folder)
        for below in _folders(folder):
            below.chmod(0o500)
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
                _remove_tree(draft)
            elif draft.suffix == ".lock" or now_s - draft.stat().st_mtime > oldest_s or self._bytes() > most_bytes:
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
            _remove_tree(draft)
            with contextlib.suppress(FileNotFoundError):
                (self._bundles / digest).chmod(0o700)  # a folder that cannot be written cannot be moved
                (self._bundles / digest).rename(draft)
            _remove_tree(draft)
            path.unlink(missing_ok=True)
        return True

    def _remove_unused(self) -> None:
        for file in self._files.iterdir():
            if file.stat().st_nlink == 1:
                file.unlink()

    def _bytes(self) -> int:
        return sum(file.stat().st_size for folder in (self._files, self._drafts) for file in folder.iterdir())


async def _in_thread(call: Callable[..., None], *arguments: object) -> None:
    """Call something that needs the locks held here: if this is cancelled, they are held until it has returned."""
    working = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


def _make_writable(draft: Path) -> None:
    """A fetch that was killed at its very end leaves a draft that is only read."""
    with contextlib.suppress(FileNotFoundError):
        draft.chmod(0o600)


def _begin_draft(draft: Path, file: BundleFile) -> int:
    """Have a draft that can be written to; returns how many parts of the file it begins with."""
    _make_writable(draft)
    have = _intact_parts(draft, file)
    if not have:
        draft.write_bytes(b"")
    return have


def _write_part(draft: Path, content: bytes, offset: int) -> None:
    with draft.open("r+b") as target:
        target.seek(offset)
        target.write(content)


def _intact_parts(draft: Path, file: BundleFile) -> int:
    """How many parts of a file its draft begins with."""
    count = 0
    with contextlib.suppress(FileNotFoundError), draft.open("rb") as content:
        for part in file.parts:
            if hashlib.sha256(content.read(part.size)).hexdigest() != part.sha256:
                break
            count += 1
    return count


def _holds_only(folder: Path, manifest: BundleManifest) -> bool:
    """Whether a folder has no file that the manifest does not name: Python would import it, too."""
    expected = {*(file.path for file in manifest.files), MANIFEST_NAME}
    return all(path in expected for path in _files_in(folder))


def _files_in(folder: Path) -> Iterator[str]:
    for place, below, names in os.walk(folder):
        links = [name for name in below if os.path.islink(os.path.join(place, name))]
        yield from (Path(place, name).relative_to(folder).as_posix() for name in (*names, *links))


def _remove_others(folder: Path, expected: set[str]) -> None:
    for path in list(_files_in(folder)):
        if path not in expected:
            (folder / path).unlink()
    for path in expected:  # a folder or a link in place of a file
        place = folder / path
        if place.is_symlink():
            place.unlink()
        elif place.is_dir():
            _remove_tree(place)


def _folders(folder: Path) -> list[Path]:
    return [Path(place) for place, _, _ in os.walk(folder)]


def _open_tree(folder: Path) -> None:
    """Allow changes in a folder that is only read."""
    for place, below, _ in os.walk(folder):
        for name in below:
            if not os.path.islink(path := os.path.join(place, name)):
                os.chmod(path, 0o700)
    folder.chmod(0o700)


def _remove_tree(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        _open_tree(folder)
    shutil.rmtree(folder, ignore_errors=True)


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
