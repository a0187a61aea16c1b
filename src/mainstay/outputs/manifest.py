"""The manifest: every expected unit and output of a job with its path, written when the job is submitted.

Units are kept as a table of parameters and pairs of (its row, seed), so that 100,000 units of 1,000 parameter sets
take little more than their seeds. The object is JSON in gzip: the standard library has both, and so has every shell
(`zcat`). Zstandard would make it a quarter smaller, but the standard library has it only since Python 3.14.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import msgspec

from ..errors import InvalidInput, OutputCorrupt, OutputMissing, SchemaTooNew
from .address import Unit
from .blobs import or_raise
from .layout import files_of, manifest_path, output_path

if TYPE_CHECKING:
    from .store import OutputStore

SCHEMA = 1


class ManifestGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Units with the same outputs: those of a study, or its aggregations."""

    study: str
    code: str
    outputs: dict[str, str]
    """output -> its file"""
    params: list[dict[str, Any]]
    """each set of parameters once"""
    pairs: list[tuple[int, int | None]]
    """the units: which set of parameters, which seed"""

    @classmethod
    def of(cls, units: Iterable[Unit], outputs: Mapping[str, str] | Iterable[str]) -> Self:
        """From units of one study and one version of its code."""
        rows: dict[bytes, int] = {}
        params: list[dict[str, Any]] = []
        pairs: list[tuple[int, int | None]] = []
        study: tuple[str, str] | None = None
        for unit in units:
            study = study or (unit.study, unit.code)
            if (unit.study, unit.code) != study:
                raise InvalidInput("units", f"{unit} is not of {study[0]} {study[1]}; make a group of its own for it")
            row = rows.setdefault(msgspec.msgpack.encode(unit.params), len(params))
            if row == len(params):
                params.append(dict(unit.params))
            pairs.append((row, unit.seed))
        if study is None:
            raise InvalidInput("units", "there is none; a group has at least one")
        return cls(study=study[0], code=study[1], outputs=files_of(outputs), params=params, pairs=pairs)

    def units(self) -> Iterator[Unit]:
        """In their original order."""
        return (Unit(self.study, self.code, self.params[row], seed) for row, seed in self.pairs)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The expected outputs of a job."""

    job: str
    groups: list[ManifestGroup]
    schema: int = SCHEMA

    def __len__(self) -> int:
        """The number of units."""
        return sum(len(group.pairs) for group in self.groups)

    def expected(self) -> Iterator[tuple[Unit, str, str]]:
        """Every unit, output and path."""
        for group in self.groups:
            for unit in group.units():
                for name, file in group.outputs.items():
                    yield unit, name, output_path(unit, file)

    def page(self, start: int = 0, limit: int = 1000) -> list[tuple[Unit, str, str]]:
        """The expected outputs of at most `limit` units, from unit number `start` on."""
        page: list[tuple[Unit, str, str]] = []
        for group in self.groups:
            pairs = group.pairs[start : start + limit]
            some = msgspec.structs.replace(group, pairs=pairs)
            page += Manifest(job=self.job, groups=[some]).expected()
            start, limit = max(0, start - len(group.pairs)), limit - len(pairs)
        return page


async def save_manifest(store: OutputStore, manifest: Manifest) -> str:
    """Write it. Returns its path."""
    path = manifest_path(manifest.job)
    await store.blobs.write(path, await asyncio.to_thread(_packed, manifest))
    return path


async def load_manifest(store: OutputStore, job_id: str) -> Manifest:
    """Read it. Raises `OutputMissing` or `OutputCorrupt`, or a `StoreError` if the storage cannot be read."""
    path, of = manifest_path(job_id), f"job {job_id}"
    (body,) = or_raise(await store.blobs.read([path]))
    if body is None:
        raise OutputMissing(of, "manifest", path=path, why="it was never written, or was removed")
    try:
        return await asyncio.to_thread(_unpacked, body)
    except _Newer as newer:
        raise SchemaTooNew(f"{path} in {store.place} was written by a newer Mainstay ({newer}); upgrade") from None
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        raise OutputCorrupt(of, "manifest", path=path, why=str(error)) from None


def _packed(manifest: Manifest) -> bytes:
    # without a time, so that the same manifest has the same bytes
    return gzip.compress(msgspec.json.encode(manifest), compresslevel=5, mtime=0)


def _unpacked(body: bytes) -> Manifest:
    text = gzip.decompress(body)
    schema = msgspec.json.decode(text, type=_Head).schema
    if schema > SCHEMA:
        raise _Newer(f"schema {schema}")
    return msgspec.json.decode(text, type=Manifest)


class _Newer(Exception):
    pass


class _Head(msgspec.Struct):
    schema: int
