"""The output store: publish, read, look, remove."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from ..clock import Clock
from ..errors import InvalidInput, OutputCorrupt, OutputMissing, StoreError, TooManyConflicts
from . import entry
from .address import Unit
from .blobs import Blob, Blobs, Files, OutputFile, or_raise
from .entry import Origin, UnitEntry
from .layout import check_file, files_of, legacy_folder, output_path, study_folder, unit_folder
from .lookup import KnownDigests, OutputFinding, UnitFindings, UnitLookup, Verify, defect_of
from .scratch import Outputs, Scratch

#: attempts of two publishers of one unit, with different results
_TRIES = 8
_PAUSE_S = 0.05
#: above this size, hashing takes longer than a switch to a thread
_BIG = 256 * 1024


class OutputStore:
    """Verified outputs in a folder or a bucket. Open it with `open_outputs`."""

    def __init__(self, blobs: Blobs, *, clock: Clock, rng: random.Random, scratch: Path | None = None) -> None:
        self.blobs = blobs
        self._clock = clock
        self._rng = rng
        self._scratch = scratch
        self._known = KnownDigests()

    @property
    def place(self) -> str:
        """Its URL, without secrets."""
        return self.blobs.place

    async def publish(self, unit: Unit, files: Mapping[str, Path | bytes], about: Origin | None = None) -> UnitEntry:
        """Publish all outputs of a unit: file name -> its content, or its path on the disk.

        The entry is written last: a publisher that is stopped before has published nothing. Earlier outputs of the unit
        are replaced. Several processes may publish the same unit: the result is complete, and from one of them.
        """
        files_of(list(files))
        contents = {name: await _measured(source) for name, source in sorted(files.items())}
        folder = unit_folder(unit)
        for tried in range(_TRIES):
            if tried:
                await asyncio.sleep(self._rng.uniform(0, _PAUSE_S * 2**tried))
            before = await self._files_in(folder)
            body = await self._entry_body(unit, contents, about or Origin(), folder, before)
            own = entry.name_for(folder, body, contents)
            stale = [name for name in _entries(before) if not _same_contents(name, own)]
            if stale:
                # from here on nothing is published, so that no reader matches new files with an old entry
                await self.blobs.delete([f"{folder}/{name}" for name in stale])
            written = {
                name: await self._write(unit, f"{folder}/{name}", files[name], contents[name]) for name in contents
            }
            written[own] = await self.blobs.write(f"{folder}/{own}", body)
            after = await self._files_in(folder)
            if await self._is_published(folder, own, contents, written, (before, after)):
                self._remember(folder, contents, after, own, body)
                return entry.read_body(body)
            # the folder has files of several publishers, so no entry may stay
            await self.blobs.delete([f"{folder}/{own}"])
        raise TooManyConflicts(folder, _TRIES, place=self.place)

    @contextlib.asynccontextmanager
    async def writing(
        self, unit: Unit, outputs: Mapping[str, str] | Iterable[str], about: Origin | None = None
    ) -> AsyncIterator[Outputs]:
        """A private folder to write the outputs into; published when the block ends well, and never otherwise.

        An output that was not written raises `OutputMissing`, and nothing is published.
        """
        declared = files_of(outputs)
        with contextlib.closing(Scratch(self._scratch)) as scratch:
            out = Outputs(scratch, declared)
            yield out
            written = await asyncio.to_thread(out.written)
            if lacking := [name for name in declared if declared[name] not in written]:
                path = output_path(unit, declared[lacking[0]])
                raise OutputMissing(str(unit), ", ".join(lacking), path=path, why="it ended without writing it")
            await self.publish(unit, written, about)

    async def look(
        self,
        units: Sequence[Unit],
        outputs: Mapping[str, str] | Iterable[str],
        *,
        verify: Verify = "size",
        fresh: bool = False,
    ) -> list[UnitFindings]:
        """The state of the outputs of each unit, in the order of the units. `outputs`: output -> its file; or the files
        alone.

        `verify="content"` reads every file and compares it with what was published. A file that was read before and has
        the same size and tag is not read again, unless `fresh`.
        """
        if verify not in ("size", "content"):
            raise InvalidInput("verify", f"{verify!r} is neither 'size' nor 'content'")
        look = UnitLookup(self.blobs, files_of(outputs), content=verify == "content", known=self._known, fresh=fresh)
        return await look.at(units)

    async def read(self, unit: Unit, file: str) -> bytes:
        """Read and verify an output. Raises `OutputMissing`, `OutputCorrupt`, or a `StoreError` if it cannot be
        read."""
        path, expected = await self._published(unit, file)
        (body,) = or_raise(await self.blobs.read([path]))
        if body is None:
            raise OutputMissing(str(unit), file, path=path, why="the file is gone")
        self._compare(unit, file, path, expected, await _measured(body))
        return body

    async def save_to(self, unit: Unit, file: str, target: Path) -> Path:
        """Copy an output to the disk and verify it: `target` is complete, or does not exist."""
        path, expected = await self._published(unit, file)
        part = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
        try:
            copied = await self.blobs.save(path, part)
            if copied is None:
                raise OutputMissing(str(unit), file, path=path, why="the file is gone")
            self._compare(unit, file, path, expected, copied)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return target

    async def entry(self, unit: Unit) -> UnitEntry | None:
        """The entry of a unit; None if nothing was published."""
        folder = unit_folder(unit)
        files = await self._files_in(folder)
        bodies = await self._bodies(folder, _entries(files))
        readable = [found for name, body in bodies.items() if (found := _readable(folder, name, body))]
        # of several, the one that fits the files
        return max(readable, key=lambda each: (_fits(each, files), each.at_ms), default=None)

    async def notes(self, units: Sequence[Unit]) -> list[dict[str, Any]]:
        """The callers' own fields (`Origin.more`) in the entries of units, in the order of the units."""
        folders = [unit_folder(unit) for unit in units]
        listings = or_raise(await self.blobs.find(folders))
        names = [(folder, _entries(files)) for folder, files in zip(folders, listings, strict=True)]
        paths = [f"{folder}/{name}" for folder, some in names for name in some]
        bodies = iter(or_raise(await self.blobs.read(paths)))
        return [_own_fields(folder, [(name, next(bodies)) for name in some]) for folder, some in names]

    async def remove(self, unit: Unit) -> int:
        """Remove all files of a unit, its entry first. Returns the number of files."""
        removed = 0
        for folder in (unit_folder(unit), legacy_folder(unit)):
            files = await self._files_in(folder)
            entries = _entries(files)
            await self.blobs.delete([f"{folder}/{name}" for name in entries])
            await self.blobs.delete([f"{folder}/{name}" for name in files if name not in entries])
            removed += len(files)
        return removed

    async def scan(self, study: str | None = None) -> AsyncIterator[tuple[str, Files]]:
        """Every folder of a unit in the current layout, with its files: of a study, or of all studies."""
        prefix = f"{study_folder(study)}/" if study is not None else "v1/"
        async for folder, files in self.blobs.walk(prefix):
            if folder.count("/") == 3:
                yield folder, files

    async def close(self) -> None:
        await self.blobs.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- publishing ---------------------------------------------------------------------------------

    async def _entry_body(
        self, unit: Unit, contents: Mapping[str, OutputFile], about: Origin, folder: str, before: Files
    ) -> bytes:
        """The body of the new entry. It keeps unknown fields of entries with the same contents."""
        wanted = entry.digest_of(folder, ((name, file.sha256) for name, file in contents.items()))
        same = [name for name in _entries(before) if (parsed := entry.read_name(name)) and parsed.contents == wanted]
        kept = _own_fields(folder, (await self._bodies(folder, same)).items())
        return entry.body_of(unit, contents, about, self._clock.now_ms(), kept=kept)

    async def _write(self, unit: Unit, path: str, source: Path | bytes, expected: OutputFile) -> Blob:
        written = await self.blobs.write(path, source)
        if written.size != expected.size:
            why = f"it was still being written: {expected.size:,} bytes became {written.size:,}"
            raise OutputCorrupt(str(unit), path.rpartition("/")[2], path=path, why=why)
        return written

    async def _is_published(
        self,
        folder: str,
        own: str,
        contents: Mapping[str, OutputFile],
        written: Mapping[str, Blob],
        listings: tuple[Files, Files],
    ) -> bool:
        """Whether the files are ours, or the same; then removes entries that no longer count."""
        before, after = listings
        others = [name for name in _entries(after) if name != own]
        rivals = [name for name in others if not _same_contents(name, own)]
        if any(after.get(name) != blob for name, blob in written.items()):
            # another publisher wrote at the same time. If its results are the same, either of the new entries will do
            same = not rivals and any(name not in before for name in _entries(after))
            if not (same and await self._has(folder, contents)):
                return False
        # never a new entry with the same contents: its publisher may remove ours at the same moment
        gone = [name for name in others if name in rivals or name in before]
        gone += [name for name in after if not name.startswith("_") and name not in written]
        if gone:
            await self.blobs.delete([f"{folder}/{name}" for name in gone])
        return True

    async def _has(self, folder: str, contents: Mapping[str, OutputFile]) -> bool:
        digests = or_raise(await self.blobs.digests([f"{folder}/{name}" for name in contents]))
        return [digest and digest.sha256 for digest in digests] == [file.sha256 for file in contents.values()]

    def _remember(self, folder: str, contents: Mapping[str, OutputFile], after: Files, own: str, body: bytes) -> None:
        if own in after:
            self._known.entries.add(f"{folder}/{own}", after[own], entry.source_in(body))
        for name, file in contents.items():
            if name in after and after[name].size == file.size:
                self._known.files.add(f"{folder}/{name}", after[name], file.sha256)

    # -- reading ------------------------------------------------------------------------------------

    async def _files_in(self, folder: str) -> Files:
        (files,) = or_raise(await self.blobs.find([folder]))
        return files

    async def _bodies(self, folder: str, names: Sequence[str]) -> dict[str, bytes]:
        bodies = or_raise(await self.blobs.read([f"{folder}/{name}" for name in names]))
        return {name: body for name, body in zip(names, bodies, strict=True) if body is not None}

    async def _published(self, unit: Unit, file: str) -> tuple[str, OutputFile | None]:
        """The path of an output, and its published digest; None: its layout has no digests."""
        check_file(file)
        (findings,) = await self.look([unit], [file])
        finding = findings.outputs[file]
        path = f"{finding.folder or unit_folder(unit)}/{file}"
        _raise_for(unit, file, path, finding, self.place)
        if finding.folder == legacy_folder(unit):
            return path, None
        published = await self.entry(unit)
        if published is None and _entries(await self._files_in(unit_folder(unit))):
            raise OutputCorrupt(str(unit), file, path=path, why=entry.DAMAGED)
        if published is None or file not in published.outputs:
            raise OutputMissing(str(unit), file, path=path, why="it was removed just now")
        return path, published.outputs[file]

    def _compare(self, unit: Unit, file: str, path: str, expected: OutputFile | None, found: OutputFile) -> None:
        if expected is not None and (defect := defect_of(found.size, found.sha256, expected)):
            raise OutputCorrupt(str(unit), file, path=path, why=defect)


def _raise_for(unit: Unit, file: str, path: str, finding: OutputFinding, place: str) -> None:
    match finding.state:
        case "missing":
            raise OutputMissing(str(unit), file, path=path, why=finding.detail)
        case "corrupt":
            raise OutputCorrupt(str(unit), file, path=path, why=finding.detail)
        case "unreadable":
            raise finding.error or StoreError(f"{path} in {place}: {finding.detail}")


async def _measured(source: Path | bytes) -> OutputFile:
    if isinstance(source, Path):
        return await asyncio.to_thread(_measured_on_disk, source)
    if not isinstance(source, bytes):
        raise InvalidInput("files", f"a {type(source).__name__} is neither bytes nor a path")
    big = len(source) > _BIG
    sha256 = await asyncio.to_thread(_sha256, source) if big else _sha256(source)
    return OutputFile(len(source), sha256)


def _measured_on_disk(source: Path) -> OutputFile:
    try:
        with source.open("rb") as file:
            return OutputFile(os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest())
    except OSError as error:
        raise InvalidInput("files", f"{source} cannot be read ({error.strerror}); write it first") from None


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _entries(files: Iterable[str]) -> list[str]:
    return [name for name in files if name.startswith(entry.ENTRY_PREFIX)]


def _same_contents(name: str, other: str) -> bool:
    one, two = entry.read_name(name), entry.read_name(other)
    return one is not None and two is not None and one.contents == two.contents


def _readable(folder: str, name: str, body: bytes) -> UnitEntry | None:
    """An intact entry that this version understands."""
    found = entry.read(folder, name, body)
    return found if isinstance(found, UnitEntry) else None


def _own_fields(folder: str, entries: Iterable[tuple[str, bytes | None]]) -> dict[str, Any]:
    """The callers' own fields of readable entries."""
    fields: dict[str, Any] = {}
    for name, body in entries:
        if body is not None and _readable(folder, name, body):
            fields |= entry.unknown_fields(body)
    return fields


def _fits(published: UnitEntry, files: Files) -> bool:
    return all(name in files and files[name].size == file.size for name, file in published.outputs.items())
