"""Checking all published outputs by their entries: for an operator without a manifest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import msgspec

from ..errors import InvalidInput, StoreError
from . import entry
from .address import Unit
from .blobs import Files
from .entry import Defect, UnitEntry
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
    """The result of an audit."""

    verify: Verify
    units: int = 0
    files: int = 0
    bytes: int = 0
    unfinished: int = 0
    """folders in which nothing was published: their writers were stopped, or are still writing"""
    bad: list[BadOutput] = []


async def audit(
    store: OutputStore,
    study: str | None = None,
    *,
    verify: Verify = "content",
    progress: Callable[[OutputAudit], None] | None = None,
) -> OutputAudit:
    """Check every unit of a study, or of all studies. Reads every file, unless `verify` is "size"."""
    result = OutputAudit(verify=verify)
    async for chunk in _chunks(store, study):
        await _check(store, chunk, result)
        if progress:
            progress(result)
    return result


async def _chunks(store: OutputStore, study: str | None) -> AsyncIterator[list[tuple[str, Files]]]:
    chunk: list[tuple[str, Files]] = []
    async for folder in store.scan(study):
        chunk.append(folder)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


async def _check(store: OutputStore, chunk: list[tuple[str, Files]], result: OutputAudit) -> None:
    entries = [(folder, name) for folder, files in chunk for name in files if name.startswith(entry.ENTRY_PREFIX)]
    bodies = await store.blobs.read([f"{folder}/{name}" for folder, name in entries])
    # units that were published with the same files are checked together
    groups: dict[tuple[str, ...], dict[str, Unit]] = {}
    defects: dict[str, Defect] = {}
    for (folder, name), body in zip(entries, bodies, strict=True):
        if body is None:  # removed since it was listed
            continue
        found = _read(folder, name, body)
        if isinstance(found, Defect):
            defects[folder] = found
        else:
            groups.setdefault(tuple(found.outputs), {})[folder] = found.unit
    good: set[str] = set()
    for names, units in groups.items():
        good |= units.keys()
        findings = await store.look(list(units.values()), names, verify=result.verify)
        for folder, unit in zip(units, findings, strict=True):
            result.bad += [
                BadOutput(f"{folder}/{name}", finding.state, finding.detail)
                for name, finding in unit.outputs.items()
                if finding.state != "present"
            ]
    # one good entry of several is enough
    result.bad += [BadOutput(folder, *defect) for folder, defect in defects.items() if folder not in good]
    _count(chunk, {folder for folder, _ in entries}, result)


def _read(folder: str, name: str, body: bytes | StoreError) -> UnitEntry | Defect:
    """The entry of a unit, or its defect."""
    if isinstance(body, StoreError):
        return Defect("unreadable", str(body))
    found = entry.read(folder, name, body)
    if isinstance(found, Defect):
        return found
    try:
        belongs = unit_folder(found.unit)
    except InvalidInput:
        return Defect("corrupt", entry.DAMAGED)
    return found if belongs == folder else Defect("corrupt", entry.FOREIGN)


def _count(chunk: list[tuple[str, Files]], published: set[str], result: OutputAudit) -> None:
    for folder, files in chunk:
        if folder not in published:
            result.unfinished += 1
            continue
        data = [blob.size for name, blob in files.items() if not name.startswith("_")]
        result.units += 1
        result.files += len(data)
        result.bytes += sum(data)
