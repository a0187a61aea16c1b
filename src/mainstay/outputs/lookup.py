"""The state of the outputs of many units, from as few requests as possible.

A listing shows most of it: the name of an entry has a digest of the sizes (and one of the contents) of all files that
were published with it. A check by content reads every file and every entry: a damaged entry proves nothing. Where
something does not fit, entries are read to find the defect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from ..errors import StoreError
from . import entry
from .address import Unit, slug
from .blobs import Blob, Blobs, Files, OutputFile
from .entry import Defect, UnitEntry
from .layout import legacy_folder, unit_folder

OutputState = Literal["present", "missing", "corrupt", "unreadable"]
Verify = Literal["size", "content"]
#: path -> SHA-256; None: the file is absent
_Digests = Mapping[str, str | StoreError | None]

#: units at a time: their listings are kept in memory
_CHUNK = 10_000
#: files whose digests are remembered, and the same number of entries
_REMEMBERED = 200_000


class OutputFinding(NamedTuple):
    """The state of one output."""

    state: OutputState
    detail: str = ""
    """the defect, in a few words"""
    folder: str = ""
    """where it was found, if that is not its current place: an older layout"""
    error: StoreError | None = None
    """why it is unreadable"""


class UnitFindings(NamedTuple):
    """The states of the outputs of one unit."""

    unit: Unit
    outputs: Mapping[str, OutputFinding]
    contents: str = ""
    """of a complete unit: a digest that differs when its outputs do; empty if its entry has none"""
    source: str = ""
    """of a complete unit, by content: a digest of the source that made it; empty if its entry has none"""

    @property
    def whole(self) -> bool:
        """All outputs are present, and intact as far as they were checked."""
        return all(finding.state == "present" for finding in self.outputs.values())


PRESENT = OutputFinding("present")


class _Memory(dict[str, tuple[Blob, str]]):
    """A fact about each file, valid as long as its size and tag are the same."""

    def add(self, path: str, blob: Blob, fact: str) -> None:
        if len(self) >= _REMEMBERED:
            self.pop(next(iter(self)))
        self[path] = (blob, fact)

    def fact(self, path: str, blob: Blob) -> str | None:
        known = self.get(path)
        return known[1] if known is not None and known[0] == blob else None


class KnownDigests:
    """Facts about files that were read before."""

    def __init__(self) -> None:
        self.current: set[str] = set()
        """studies without units in the older layout: no program writes it any more"""
        self.files = _Memory()
        """their digests"""
        self.entries = _Memory()
        """intact entries, with the source that each names"""


def defect_of(size: int, sha256: str | None, expected: OutputFile) -> str:
    """The defect of a file; empty if it has none."""
    if size != expected.size:
        return f"it has {size:,} bytes, {expected.size:,} were published"
    if sha256 is not None and sha256 != expected.sha256:
        return f"its SHA-256 is {sha256[:12]}…, {expected.sha256[:12]}… was published"
    return ""


def _parsed_name(name: str, blob: Blob) -> entry.Name | None:
    """The parts of an entry's name, if the entry has the length in its name."""
    if not name.startswith(entry.ENTRY_PREFIX):
        return None
    parsed = entry.read_name(name)
    return parsed if parsed is not None and parsed.length == blob.size else None


class UnitLookup:
    """One lookup of many units."""

    def __init__(
        self, blobs: Blobs, outputs: Mapping[str, str], *, content: bool, known: KnownDigests, fresh: bool = False
    ) -> None:
        self._blobs = blobs
        self._outputs = outputs
        self._content = content
        self._known = known
        self._fresh = fresh
        # shared by all complete units: there may be many
        self._whole: Mapping[str, OutputFinding] = dict.fromkeys(outputs, PRESENT)

    async def at(self, units: Sequence[Unit]) -> list[UnitFindings]:
        findings: dict[int, UnitFindings] = {}
        # neighbours together, so that a folder of folders is listed once
        order = sorted((unit_folder(unit), index) for index, unit in enumerate(units))
        for start in range(0, len(order), _CHUNK):
            chunk = order[start : start + _CHUNK]
            found = await self._chunk([(folder, units[index]) for folder, index in chunk])
            findings.update((index, one) for (_, index), one in zip(chunk, found, strict=True))
        return await self._with_legacy([findings[index] for index in range(len(units))])

    async def _chunk(self, chunk: Sequence[tuple[str, Unit]]) -> list[UnitFindings]:
        folders = [folder for folder, _ in chunk]
        listings = await self._blobs.find(folders)
        digests = await self._digests(folders, listings) if self._content else {}
        intact = await self._intact(folders, listings) if self._content else {}
        findings: list[UnitFindings] = []
        doubtful: list[tuple[int, Files]] = []
        for index, ((folder, unit), files) in enumerate(zip(chunk, listings, strict=True)):
            if isinstance(files, StoreError):
                findings.append(UnitFindings(unit, self._unreadable(files)))
                continue
            contents, source = self._fitting_entry(folder, files, digests, intact)
            findings.append(UnitFindings(unit, self._whole, contents, source))
            if not contents:
                doubtful.append((index, files))
        bodies = await self._entries([(folders[index], files) for index, files in doubtful])
        for (index, files), entries in zip(doubtful, bodies, strict=True):
            folder, unit = chunk[index]
            findings[index] = UnitFindings(unit, self._explained(unit, folder, files, entries, digests))
        return findings

    def _fitting_entry(
        self, folder: str, files: Files, digests: _Digests, intact: Mapping[str, str]
    ) -> tuple[str, str]:
        """The contents and the source of the entry that fits the files, by its name; by content, of an intact entry.
        Empty if none fits."""
        entries = [
            (parsed, intact.get(f"{folder}/{name}", ""))
            for name, blob in files.items()
            if (parsed := _parsed_name(name, blob)) and (not self._content or f"{folder}/{name}" in intact)
        ]
        if not entries or not all(file in files for file in self._outputs.values()):
            return "", ""
        data = {name: blob for name, blob in files.items() if not name.startswith("_")}
        sizes = entry.digest_of(folder, ((name, blob.size) for name, blob in data.items()))
        fitting = {parsed.contents: source for parsed, source in entries if parsed.sizes == sizes}
        if not self._content or not fitting:
            return min(fitting, default=""), ""
        contents = {name: digests.get(f"{folder}/{name}") for name in data}
        if not all(isinstance(sha256, str) for sha256 in contents.values()):
            return "", ""
        wanted = entry.digest_of(folder, ((name, str(sha256)) for name, sha256 in contents.items()))
        return (wanted, fitting[wanted]) if wanted in fitting else ("", "")

    async def _digests(self, folders: Sequence[str], listings: Sequence[Files | StoreError]) -> _Digests:
        """The digests of all files in folders with an entry. Files without an entry are not worth reading."""
        digests: dict[str, str | StoreError | None] = {}
        todo: list[tuple[str, Blob]] = []
        for folder, files in zip(folders, listings, strict=True):
            if isinstance(files, StoreError) or not any(name.startswith(entry.ENTRY_PREFIX) for name in files):
                continue
            for name, blob in files.items():
                if name.startswith("_"):
                    continue
                path = f"{folder}/{name}"
                if self._fresh or (sha256 := self._known.files.fact(path, blob)) is None:
                    todo.append((path, blob))
                else:
                    digests[path] = sha256
        for (path, blob), found in zip(todo, await self._blobs.digests([path for path, _ in todo]), strict=True):
            if found is None or isinstance(found, StoreError):
                digests[path] = found
                continue
            digests[path] = found.sha256
            if found.size == blob.size:
                self._known.files.add(path, blob, found.sha256)
        return digests

    async def _intact(self, folders: Sequence[str], listings: Sequence[Files | StoreError]) -> dict[str, str]:
        """The paths of intact entries, with the source that each names."""
        intact: dict[str, str] = {}
        todo: list[tuple[str, str, Blob]] = []
        for folder, files in zip(folders, listings, strict=True):
            for name, blob in {} if isinstance(files, StoreError) else files.items():
                if _parsed_name(name, blob) is None:
                    continue
                path = f"{folder}/{name}"
                if self._fresh or (source := self._known.entries.fact(path, blob)) is None:
                    todo.append((folder, name, blob))
                else:
                    intact[path] = source
        bodies = await self._blobs.read([f"{folder}/{name}" for folder, name, _ in todo])
        for (folder, name, blob), body in zip(todo, bodies, strict=True):
            if isinstance(body, bytes) and entry.is_intact(folder, name, body):
                path = f"{folder}/{name}"
                intact[path] = entry.source_in(body)
                self._known.entries.add(path, blob, intact[path])
        return intact

    async def _entries(self, doubtful: Sequence[tuple[str, Files]]) -> list[list[tuple[str, bytes | StoreError]]]:
        """The entries of each folder: name and body."""
        names = [
            (folder, [name for name in files if name.startswith(entry.ENTRY_PREFIX)]) for folder, files in doubtful
        ]
        bodies = iter(await self._blobs.read([f"{folder}/{name}" for folder, some in names for name in some]))
        return [[(name, body) for name in some if (body := next(bodies)) is not None] for _, some in names]

    def _explained(
        self,
        unit: Unit,
        folder: str,
        files: Files,
        entries: Sequence[tuple[str, bytes | StoreError]],
        digests: _Digests,
    ) -> Mapping[str, OutputFinding]:
        """The defects, by the entry that fits best."""
        if not entries:
            return {
                name: OutputFinding(
                    "missing",
                    "the file exists, but was not published: its writer was stopped, or is still writing"
                    if file in files
                    else "nothing was published",
                )
                for name, file in self._outputs.items()
            }
        candidates = [self._by_entry(unit, folder, files, name, body, digests) for name, body in entries]
        return max(candidates, key=lambda outputs: sum(finding.state == "present" for finding in outputs.values()))

    def _by_entry(
        self, unit: Unit, folder: str, files: Files, name: str, body: bytes | StoreError, digests: _Digests
    ) -> Mapping[str, OutputFinding]:
        if isinstance(body, StoreError):
            return self._unreadable(body)
        found = entry.read(folder, name, body)
        if isinstance(found, UnitEntry) and found.address != unit.address:
            found = Defect("corrupt", entry.FOREIGN)
        if isinstance(found, Defect):
            return dict.fromkeys(self._outputs, OutputFinding(*found))
        return {
            name: self._by_file(file, found, files.get(file), digests.get(f"{folder}/{file}"))
            for name, file in self._outputs.items()
        }

    def _by_file(
        self, file: str, published: UnitEntry, blob: Blob | None, sha256: str | StoreError | None
    ) -> OutputFinding:
        if file not in published.outputs:
            return OutputFinding("missing", "the unit was published without it")
        if blob is None:
            return OutputFinding("missing", "the file is gone")
        if isinstance(sha256, StoreError):
            return OutputFinding("unreadable", str(sha256), error=sha256)
        defect = defect_of(blob.size, sha256, published.outputs[file])
        return OutputFinding("corrupt", defect) if defect else PRESENT

    async def _with_legacy(self, findings: list[UnitFindings]) -> list[UnitFindings]:
        """Look for units without any output in the older layout, if their study has one."""
        lacking = [
            index
            for index, one in enumerate(findings)
            if (self._fresh or slug(one.unit.study) not in self._known.current)
            and all(finding.state == "missing" and not finding.folder for finding in one.outputs.values())
        ]
        if not lacking:
            return findings
        try:
            tops = set(await self._blobs.tops())
        except StoreError as error:
            for index in lacking:
                findings[index] = UnitFindings(findings[index].unit, self._unreadable(error))
            return findings
        self._known.current |= {slug(findings[index].unit.study) for index in lacking} - tops
        lacking = [index for index in lacking if slug(findings[index].unit.study) in tops]
        folders = [legacy_folder(findings[index].unit) for index in lacking]
        for index, folder, files in zip(lacking, folders, await self._blobs.find(folders), strict=True):
            unit, outputs = findings[index].unit, findings[index].outputs
            if isinstance(files, StoreError):
                outputs = self._unreadable(files)
            elif files:
                outputs = {
                    name: OutputFinding("present", "in layout v0, which has no checksums", folder)
                    if file in files
                    else outputs[name]
                    for name, file in self._outputs.items()
                }
            else:
                continue
            findings[index] = UnitFindings(unit, outputs)
        return findings

    def _unreadable(self, error: StoreError) -> Mapping[str, OutputFinding]:
        return dict.fromkeys(self._outputs, OutputFinding("unreadable", str(error), error=error))
