"""What is there of many units: one answer for each of their outputs, from as few requests as possible.

A listing tells most of it: an entry's name holds a digest of the sizes (and one of the contents) of all that was
published with it. By content, every file is read, the entry included, for a damaged entry vouches for nothing. Where
something does not fit, entries are read to say what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from ..errors import StoreError
from . import entry
from .address import Unit, slug
from .blobs import Blob, Blobs, Files
from .entry import OutputFile, UnitEntry
from .layout import legacy_folder, unit_folder

State = Literal["present", "missing", "corrupt", "unreadable"]
Verify = Literal["size", "content"]

#: units at a time: their listings are held in memory
_CHUNK = 10_000
#: files whose digests are remembered, and as many entries
_REMEMBERED = 200_000


class OutputFinding(NamedTuple):
    """What became of one output."""

    state: State
    detail: str = ""
    """what is wrong, in a few words"""
    folder: str = ""
    """where it was found, if that is not where it belongs now: an older layout"""
    error: StoreError | None = None
    """why it is unreadable"""


class UnitFindings(NamedTuple):
    """What became of the outputs of one unit."""

    unit: Unit
    outputs: Mapping[str, OutputFinding]
    contents: str = ""
    """of a unit that is whole: a digest that differs when its outputs do; empty if its entry does not tell"""
    source: str = ""
    """of a unit that is whole, by content: a digest of the source that made it; empty if its entry does not tell"""

    @property
    def whole(self) -> bool:
        """All of them are there, and intact as far as was looked."""
        return all(finding.state == "present" for finding in self.outputs.values())


PRESENT = OutputFinding("present")


class KnownDigests:
    """Digests of files that were read before; they hold as long as size and tag are the same."""

    def __init__(self) -> None:
        self.current: set[str] = set()
        """studies of which nothing is in the older layout: nobody writes that any more"""
        self._found: dict[str, tuple[Blob, str]] = {}
        self._entries: dict[str, tuple[Blob, str]] = {}

    def add(self, path: str, blob: Blob, sha256: str) -> None:
        if len(self._found) >= _REMEMBERED:
            self._found.pop(next(iter(self._found)))
        self._found[path] = (blob, sha256)

    def get(self, path: str, blob: Blob) -> str | None:
        found = self._found.get(path)
        return found[1] if found is not None and found[0] == blob else None

    def add_entry(self, path: str, blob: Blob, source: str) -> None:
        """One that is intact, and the source that it tells of."""
        if len(self._entries) >= _REMEMBERED:
            self._entries.pop(next(iter(self._entries)))
        self._entries[path] = (blob, source)

    def entry(self, path: str, blob: Blob) -> str | None:
        found = self._entries.get(path)
        return found[1] if found is not None and found[0] == blob else None


def judged(size: int, sha256: str | None, expected: OutputFile) -> str:
    """What is wrong with a file, or nothing."""
    if size != expected.size:
        return f"it has {size:,} bytes, {expected.size:,} were published"
    if sha256 is not None and sha256 != expected.sha256:
        return f"its SHA-256 is {sha256[:12]}…, {expected.sha256[:12]}… was published"
    return ""


def _named(name: str, blob: Blob) -> entry.Name | None:
    """What the name of an entry tells, if the entry has the length that it tells."""
    if not name.startswith(entry.PREFIX):
        return None
    told = entry.read_name(name)
    return told if told is not None and told.length == blob.size else None


class UnitLookup:
    """One look at many units."""

    def __init__(
        self, blobs: Blobs, outputs: Mapping[str, str], *, content: bool, known: KnownDigests, fresh: bool = False
    ) -> None:
        self._blobs = blobs
        self._outputs = outputs
        self._content = content
        self._known = known
        self._fresh = fresh
        # shared by all units that are whole: there may be many
        self._whole: Mapping[str, OutputFinding] = dict.fromkeys(outputs, PRESENT)

    async def at(self, units: Sequence[Unit]) -> list[UnitFindings]:
        answers: list[UnitFindings | None] = [None] * len(units)
        # neighbours together, so that a folder of folders is listed once
        order = sorted((unit_folder(unit), place) for place, unit in enumerate(units))
        for start in range(0, len(order), _CHUNK):
            chunk = order[start : start + _CHUNK]
            found = await self._looked([(folder, units[place]) for folder, place in chunk])
            for (_, place), (outputs, contents, source) in zip(chunk, found, strict=True):
                answers[place] = UnitFindings(units[place], outputs, contents, source)
        seen = [answer for answer in answers if answer is not None]
        return await self._with_legacy(seen)

    async def _looked(self, chunk: Sequence[tuple[str, Unit]]) -> list[tuple[Mapping[str, OutputFinding], str, str]]:
        """Of each unit: its outputs, their contents and the source that made them."""
        listings = await self._blobs.find([folder for folder, _ in chunk])
        folders = [folder for folder, _ in chunk]
        digests = await self._digests(folders, listings) if self._content else {}
        intact = await self._intact(folders, listings) if self._content else {}
        answers: list[tuple[Mapping[str, OutputFinding], str, str]] = []
        doubtful: list[int] = []
        for place, ((folder, _), files) in enumerate(zip(chunk, listings, strict=True)):
            if isinstance(files, StoreError):
                answers.append((self._all(OutputFinding("unreadable", str(files), error=files)), "", ""))
                continue
            contents, source = self._fits(folder, files, digests, intact)
            answers.append((self._whole, contents, source))
            if not contents:
                doubtful.append(place)
        bodies = await self._entries([(chunk[place][0], listings[place]) for place in doubtful])
        for place, entries in zip(doubtful, bodies, strict=True):
            folder, unit = chunk[place]
            files = listings[place]
            assert not isinstance(files, StoreError)
            answers[place] = self._explained(unit, folder, files, entries, digests), "", ""
        return answers

    def _fits(
        self, folder: str, files: Files, digests: Mapping[str, str | StoreError | None], intact: Mapping[str, str]
    ) -> tuple[str, str]:
        """By the names of the entries, of those that are intact if contents count: the contents that one tells of what
        is there, and its source; nothing if none fits."""
        entries = [
            (told, intact.get(f"{folder}/{name}", ""))
            for name, blob in files.items()
            if (told := _named(name, blob)) and (not self._content or f"{folder}/{name}" in intact)
        ]
        if not entries or not all(file in files for file in self._outputs.values()):
            return "", ""
        data = {name: blob for name, blob in files.items() if not name.startswith("_")}
        sizes = entry.digest_of(folder, ((name, blob.size) for name, blob in data.items()))
        fitting = {told.contents: source for told, source in entries if told.sizes == sizes}
        if not self._content or not fitting:
            return min(fitting, default=""), ""
        contents = {name: digests.get(f"{folder}/{name}") for name in data}
        if not all(isinstance(sha256, str) for sha256 in contents.values()):
            return "", ""
        wanted = entry.digest_of(folder, ((name, str(sha256)) for name, sha256 in contents.items()))
        return (wanted, fitting[wanted]) if wanted in fitting else ("", "")

    async def _digests(
        self, folders: Sequence[str], listings: Sequence[Files | StoreError]
    ) -> dict[str, str | StoreError | None]:
        """Of all files that were published, as it seems; those that nothing vouches for are not worth reading."""
        digests: dict[str, str | StoreError | None] = {}
        todo: list[tuple[str, Blob]] = []
        for folder, files in zip(folders, listings, strict=True):
            if isinstance(files, StoreError) or not any(name.startswith(entry.PREFIX) for name in files):
                continue
            for name, blob in files.items():
                if name.startswith("_"):
                    continue
                path = f"{folder}/{name}"
                if self._fresh or (sha256 := self._known.get(path, blob)) is None:
                    todo.append((path, blob))
                else:
                    digests[path] = sha256
        for (path, blob), found in zip(todo, await self._blobs.digests([path for path, _ in todo]), strict=True):
            if found is None or isinstance(found, StoreError):
                digests[path] = found
                continue
            digests[path] = found.sha256
            if found.size == blob.size:
                self._known.add(path, blob, found.sha256)
        return digests

    async def _intact(self, folders: Sequence[str], listings: Sequence[Files | StoreError]) -> dict[str, str]:
        """The paths of entries that are what was written, with the source that each tells of."""
        intact: dict[str, str] = {}
        todo: list[tuple[str, str, Blob]] = []
        for folder, files in zip(folders, listings, strict=True):
            for name, blob in {} if isinstance(files, StoreError) else files.items():
                if _named(name, blob) is None:
                    continue
                path = f"{folder}/{name}"
                if self._fresh or (source := self._known.entry(path, blob)) is None:
                    todo.append((folder, name, blob))
                else:
                    intact[path] = source
        bodies = await self._blobs.read([f"{folder}/{name}" for folder, name, _ in todo])
        for (folder, name, blob), body in zip(todo, bodies, strict=True):
            if isinstance(body, bytes) and entry.is_intact(folder, name, body):
                path = f"{folder}/{name}"
                intact[path] = entry.source_in(body)
                self._known.add_entry(path, blob, intact[path])
        return intact

    async def _entries(
        self, doubtful: Sequence[tuple[str, Files | StoreError]]
    ) -> list[list[tuple[str, bytes | StoreError]]]:
        """The entries of each folder: name and body."""
        names = [
            (folder, [name for name in files if name.startswith(entry.PREFIX)])
            for folder, files in doubtful
            if not isinstance(files, StoreError)
        ]
        flat = iter(await self._blobs.read([f"{folder}/{name}" for folder, some in names for name in some]))
        return [[(name, body) for name in some if (body := next(flat)) is not None] for _, some in names]

    def _explained(
        self,
        unit: Unit,
        folder: str,
        files: Files,
        entries: Sequence[tuple[str, bytes | StoreError]],
        digests: Mapping[str, str | StoreError | None],
    ) -> Mapping[str, OutputFinding]:
        """What is wrong, by the entry that fits best."""
        if not entries:
            return {
                name: OutputFinding(
                    "missing",
                    "it is there, but was not published: its writer was stopped, or is at work"
                    if file in files
                    else "nothing was published",
                )
                for name, file in self._outputs.items()
            }
        answers = [self._by(unit, folder, files, name, body, digests) for name, body in entries]
        return max(answers, key=lambda found: sum(finding.state == "present" for finding in found.values()))

    def _by(
        self,
        unit: Unit,
        folder: str,
        files: Files,
        name: str,
        body: bytes | StoreError,
        digests: Mapping[str, str | StoreError | None],
    ) -> Mapping[str, OutputFinding]:
        if isinstance(body, StoreError):
            return self._all(OutputFinding("unreadable", str(body), error=body))
        if not entry.is_intact(folder, name, body):
            return self._all(OutputFinding("corrupt", entry.DAMAGED))
        try:
            told = entry.read_body(body)
        except entry.NewerEntry:
            return self._all(OutputFinding("unreadable", "its entry was written by a newer Mainstay: upgrade this one"))
        except msgspec.DecodeError:
            return self._all(OutputFinding("corrupt", entry.DAMAGED))
        if told.address != unit.address:
            return self._all(OutputFinding("corrupt", "its entry is that of another unit"))
        return {
            name: self._one(file, told, files.get(file), digests.get(f"{folder}/{file}"))
            for name, file in self._outputs.items()
        }

    def _one(self, file: str, told: UnitEntry, blob: Blob | None, sha256: str | StoreError | None) -> OutputFinding:
        if file not in told.outputs:
            return OutputFinding("missing", "the unit was published without it")
        if blob is None:
            return OutputFinding("missing", "the file is gone")
        if isinstance(sha256, StoreError):
            return OutputFinding("unreadable", str(sha256), error=sha256)
        wrong = judged(blob.size, sha256, told.outputs[file])
        return OutputFinding("corrupt", wrong) if wrong else PRESENT

    async def _with_legacy(self, seen: list[UnitFindings]) -> list[UnitFindings]:
        """Units of which nothing is there may be in the older layout, if their study has one."""
        lacking = [
            place
            for place, one in enumerate(seen)
            if (self._fresh or slug(one.unit.study) not in self._known.current)
            and all(finding.state == "missing" and not finding.folder for finding in one.outputs.values())
        ]
        if not lacking:
            return seen
        try:
            tops = set(await self._blobs.tops())
        except StoreError as error:
            for place in lacking:
                seen[place] = UnitFindings(
                    seen[place].unit, self._all(OutputFinding("unreadable", str(error), error=error))
                )
            return seen
        self._known.current |= {slug(seen[place].unit.study) for place in lacking} - tops
        lacking = [place for place in lacking if slug(seen[place].unit.study) in tops]
        folders = [legacy_folder(seen[place].unit) for place in lacking]
        for place, folder, files in zip(lacking, folders, await self._blobs.find(folders), strict=True):
            if isinstance(files, StoreError):
                seen[place] = UnitFindings(
                    seen[place].unit, self._all(OutputFinding("unreadable", str(files), error=files))
                )
            elif files:
                outputs = {
                    name: OutputFinding("present", "in layout v0, which has no checksums", folder)
                    if file in files
                    else seen[place].outputs[name]
                    for name, file in self._outputs.items()
                }
                seen[place] = UnitFindings(seen[place].unit, outputs)
        return seen

    def _all(self, finding: OutputFinding) -> Mapping[str, OutputFinding]:
        return dict.fromkeys(self._outputs, finding)
