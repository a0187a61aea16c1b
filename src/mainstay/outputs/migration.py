"""Moving outputs from an older layout to the current one.

Each unit is copied, published (its entry last), read again in full, and only then removed from its old place. A
migration that is stopped loses nothing and can be started again: it leaves alone the units that were moved.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import InvalidInput, MainstayError
from .address import Unit
from .blobs import Files, or_raise
from .entry import Origin
from .layout import LEGACY_UNIT, check_file, is_legacy_study, is_legacy_unit, unit_folder

if TYPE_CHECKING:
    from .store import OutputStore


class OutputMigration(msgspec.Struct, kw_only=True):
    """The result of a migration, or of a dry run."""

    dry_run: bool
    moved: int = 0
    """units"""
    files: int = 0
    bytes: int = 0
    left: dict[str, str] = {}
    """folder -> why it was not moved"""


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
    """Move outputs from an older layout to the current one; safe to stop, and to run again.

    A unit that cannot be moved stays, and is listed with the reason. `progress` is called after every unit.
    """
    done = OutputMigration(dry_run=dry_run)
    # listed before anything changes: a listing in pages may skip names after a removal
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
            for folder in [name async for name, _ in store.blobs.walk(f"{study}/") if is_legacy_unit(name)]:
                (files,) = or_raise(await store.blobs.find([folder]))
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
    # last: without it, the unit of the remaining files would be unknown
    await store.blobs.delete([f"{folder}/{LEGACY_UNIT}"])


async def _unit_of(store: OutputStore, folder: str, files: Files) -> Unit:
    if LEGACY_UNIT not in files:
        raise _Left(f"it has no {LEGACY_UNIT}: the unit of these outputs is not known")
    (body,) = or_raise(await store.blobs.read([f"{folder}/{LEGACY_UNIT}"]))
    try:
        described = msgspec.json.decode(body or b"", type=_Described)
        unit = Unit(described.study, described.code, described.params, described.seed)
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
            copied = await store.blobs.save(f"{folder}/{name}", target)
            if copied is None:
                raise _Left(f"{name} was removed during the migration")
            copies[name], digests[name] = target, copied.sha256
        published = await store.entry(unit)
        if published is None:
            await store.publish(unit, copies, Origin(by="mainstay outputs migrate", more={"migrated_from": folder}))
            published = await store.entry(unit)
        for name, sha256 in digests.items():
            if published is None or name not in published.outputs or published.outputs[name].sha256 != sha256:
                raise _Left(f"{name} differs from {unit_folder(unit)}/{name}; remove one of them")
    (findings,) = await store.look([unit], names, verify="content", fresh=True)
    if not findings.whole:
        defects = {name: finding.detail for name, finding in findings.outputs.items() if finding.state != "present"}
        raise _Left(f"the outputs in {unit_folder(unit)} are not complete: {defects}")
