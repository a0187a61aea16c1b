"""Moving outputs from an older layout to the current one.

Each unit is copied, published (which ends with its entry), looked at again in full, and only then removed where it
was. Whoever is stopped in between loses nothing and may start again: what was moved is found and left alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import InvalidInput, MainstayError, StoreError
from .address import Unit
from .blobs import Files
from .entry import Origin
from .layout import LEGACY_UNIT, check_file, is_legacy_study, is_legacy_unit, unit_folder

if TYPE_CHECKING:
    from .store import OutputStore


class OutputMigration(msgspec.Struct, kw_only=True):
    """What was done, or would be."""

    dry_run: bool
    moved: int = 0
    """units"""
    files: int = 0
    bytes: int = 0
    left: dict[str, str] = {}
    """folder -> why it was left as it is"""


class _Described(msgspec.Struct, frozen=True):
    study: str
    code: str
    params: dict[str, Any]
    seed: int | None = None


class _Left(MainstayError):
    """This unit cannot be moved."""


async def migrate(
    store: OutputStore, *, dry_run: bool = False, progress: Callable[[OutputMigration], None] | None = None
) -> OutputMigration:
    """Move what is in an older layout to the current one; safe to stop, and to run again.

    What cannot be moved is left where it is, and listed with the reason. `progress` is told after every unit.
    """
    done = OutputMigration(dry_run=dry_run)
    # listed before anything changes: a listing that is paged may pass over what comes after a removal
    async for folder, files in _legacy(store):
        try:
            await _move(store, folder, files, dry_run=dry_run)
        except _Left as error:
            done.left[folder] = str(error)
        else:
            done.moved += 1
            done.files += len(files) - 1
            done.bytes += sum(blob.size for name, blob in files.items() if name != LEGACY_UNIT)
        if progress:
            progress(done)
    return done


async def _legacy(store: OutputStore) -> AsyncIterator[tuple[str, Files]]:
    for study in await store.blobs.tops():
        if is_legacy_study(study):
            for folder in [found async for found, _ in store.blobs.walk(f"{study}/") if is_legacy_unit(found)]:
                (files,) = await store.blobs.find([folder])
                if isinstance(files, StoreError):
                    raise files
                if files:
                    yield folder, files


async def _move(store: OutputStore, folder: str, files: Files, *, dry_run: bool) -> None:
    unit = await _unit_of(store, folder, files)
    names = [name for name in files if name != LEGACY_UNIT]
    try:
        for name in names:
            check_file(name)
    except InvalidInput as error:
        raise _Left(str(error)) from None
    if dry_run:
        return
    if names:
        await _copy(store, unit, folder, names)
    await store.blobs.delete([f"{folder}/{name}" for name in names])
    # last: without it, what is left of a unit would be nobody's
    await store.blobs.delete([f"{folder}/{LEGACY_UNIT}"])


async def _unit_of(store: OutputStore, folder: str, files: Files) -> Unit:
    if LEGACY_UNIT not in files:
        raise _Left(f"it has no {LEGACY_UNIT}: the unit of these outputs is not known")
    (body,) = await store.blobs.read([f"{folder}/{LEGACY_UNIT}"])
    if isinstance(body, StoreError):
        raise body
    try:
        told = msgspec.json.decode(body or b"", type=_Described)
        unit = Unit(told.study, told.code, told.params, told.seed)
    except (msgspec.DecodeError, InvalidInput) as error:
        raise _Left(f"its {LEGACY_UNIT} cannot be read: {error}") from None
    if unit.address != folder.rpartition("/")[2]:
        raise _Left(f"its {LEGACY_UNIT} is that of another unit ({unit.address})")
    return unit


async def _copy(store: OutputStore, unit: Unit, folder: str, names: list[str]) -> None:
    with TemporaryDirectory(prefix="mainstay-migrate-") as local:
        copies: dict[str, Path | bytes] = {}
        digests: dict[str, str] = {}
        for name in names:
            target = Path(local) / name
            found = await store.blobs.save(f"{folder}/{name}", target)
            if found is None:
                raise _Left(f"{name} was removed meanwhile")
            copies[name], digests[name] = target, found.sha256
        there = await store.entry(unit)
        if there is None:
            await store.publish(unit, copies, Origin(by="mainstay outputs migrate", more={"migrated_from": folder}))
            there = await store.entry(unit)
        for name, sha256 in digests.items():
            if there is None or name not in there.outputs or there.outputs[name].sha256 != sha256:
                raise _Left(f"{name} differs from what {unit_folder(unit)} has; remove one of them")
    (seen,) = await store.look([unit], names, verify="content", fresh=True)
    if not seen.whole:
        wrong = {name: finding.detail for name, finding in seen.outputs.items() if finding.state != "present"}
        raise _Left(f"what is at {unit_folder(unit)} is not whole: {wrong}")
