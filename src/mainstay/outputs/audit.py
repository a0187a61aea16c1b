"""Checking all that is there, by what its entries say: for whoever has a store and no manifest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import msgspec

from ..errors import InvalidInput, StoreError
from . import entry
from .address import Unit
from .blobs import Files
from .entry import UnitEntry
from .layout import unit_folder
from .lookup import Verify

if TYPE_CHECKING:
    from .store import OutputStore

#: units at a time
_CHUNK = 1000


class BadOutput(msgspec.Struct, frozen=True):
    """An output that is not what was published."""

    path: str
    state: str
    detail: str


class OutputAudit(msgspec.Struct, kw_only=True):
    """What was found."""

    verify: Verify
    units: int = 0
    files: int = 0
    bytes: int = 0
    unfinished: int = 0
    """folders in which nothing was published: their writers were stopped, or are at work"""
    bad: list[BadOutput] = []


async def audit(
    store: OutputStore,
    study: str | None = None,
    *,
    verify: Verify = "content",
    progress: Callable[[OutputAudit], None] | None = None,
) -> OutputAudit:
    """Look at every unit of a study, or of all; every file is read, unless `verify` is "size"."""
    found = OutputAudit(verify=verify)
    async for chunk in _chunks(store, study):
        await _look(store, chunk, found)
        if progress:
            progress(found)
    return found


async def _chunks(store: OutputStore, study: str | None) -> AsyncIterator[list[tuple[str, Files]]]:
    chunk: list[tuple[str, Files]] = []
    async for folder in store.scan(study):
        chunk.append(folder)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


async def _look(store: OutputStore, chunk: list[tuple[str, Files]], found: OutputAudit) -> None:
    entries = [(folder, name) for folder, files in chunk for name in files if name.startswith(entry.PREFIX)]
    bodies = await store.blobs.read([f"{folder}/{name}" for folder, name in entries])
    # units that were published with the same files are looked at together
    groups: dict[tuple[str, ...], dict[str, Unit]] = {}
    problems: dict[str, tuple[str, str]] = {}
    for (folder, name), body in zip(entries, bodies, strict=True):
        if body is not None:  # or it was removed meanwhile
            told = _told(folder, name, body)
            if isinstance(told, UnitEntry):
                groups.setdefault(tuple(told.outputs), {})[folder] = _unit(told)
            else:
                problems[folder] = told
    good: set[str] = set()
    for names, units in groups.items():
        good |= units.keys()
        for folder, seen in zip(units, await store.look(list(units.values()), names, verify=found.verify), strict=True):
            found.bad += [
                BadOutput(f"{folder}/{name}", finding.state, finding.detail)
                for name, finding in seen.outputs.items()
                if finding.state != "present"
            ]
    # of several entries one is enough
    found.bad += [BadOutput(folder, *why) for folder, why in problems.items() if folder not in good]
    _count(chunk, {folder for folder, _ in entries}, found)


def _told(folder: str, name: str, body: bytes | StoreError) -> UnitEntry | tuple[str, str]:
    """The entry of a unit; or what is the matter with it, state and detail."""
    if isinstance(body, StoreError):
        return "unreadable", str(body)
    if not entry.is_intact(folder, name, body):
        return "corrupt", entry.DAMAGED
    try:
        told = entry.read_body(body)
        belongs = unit_folder(_unit(told))
    except entry.NewerEntry:
        return "unreadable", "its entry was written by a newer Mainstay: upgrade this one"
    except (msgspec.DecodeError, InvalidInput):
        return "corrupt", entry.DAMAGED
    return told if belongs == folder else ("corrupt", "its entry is that of another unit")


def _unit(told: UnitEntry) -> Unit:
    return Unit(told.study, told.code, told.params, told.seed)


def _count(chunk: list[tuple[str, Files]], published: set[str], found: OutputAudit) -> None:
    for folder, files in chunk:
        if folder not in published:
            found.unfinished += 1
            continue
        data = [blob.size for name, blob in files.items() if not name.startswith("_")]
        found.units += 1
        found.files += len(data)
        found.bytes += sum(data)
