"""The entry of a unit: the record of what was published, written last. Without an entry, nothing is published.

Its name has its own length, digests of the unit with its files' sizes and with their contents, a digest of the entry
itself, and a random part that makes it unique:

    _entry-<bytes>-<12 hex of the sizes>-<12 hex of the contents>-<16 hex of the entry>-<8 hex>.json

So a listing alone shows that the sizes fit, and a changed bit in the entry shows against its own name: a damaged entry
proves nothing. Two publishers of one unit write two entries; the one that fits the files counts. Entries of earlier
versions have no digest of their own; their name must fit the files that they list (`is_intact`).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from ..errors import InvalidInput
from .address import Unit
from .blobs import OutputFile
from .layout import DIGITS

SCHEMA = 1
ENTRY_PREFIX = "_entry-"
#: a field of `Origin.more`: a digest of the source that made the outputs
SOURCE_DIGEST = "source"
DAMAGED = "its entry is damaged"
FOREIGN = "its entry is that of another unit"
_OWN_DIGITS = 16
_NAME = re.compile(r"_entry-(\d{1,12})-([0-9a-f]{12})-([0-9a-f]{12})(?:-([0-9a-f]{16}))?-[0-9a-f]{8}\.json")


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who or what made outputs, for the record."""

    job: str | None = None
    attempt: int | None = None
    by: str | None = None
    """a worker, a person, a program"""
    more: Mapping[str, Any] = {}
    """your own fields"""


class UnitEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The published outputs of a unit."""

    schema: int
    address: str
    outputs: dict[str, OutputFile]
    study: str = ""
    code: str = ""
    params: dict[str, Any] = {}
    seed: int | None = None
    job: str | None = None
    attempt: int | None = None
    by: str | None = None
    at_ms: int = 0

    @property
    def unit(self) -> Unit:
        return Unit(self.study, self.code, self.params, self.seed)


class Name(NamedTuple):
    """The parts of an entry's name."""

    length: int
    sizes: str
    contents: str
    own: str
    """digest of the entry itself; empty: written by an earlier version"""


class Defect(NamedTuple):
    """Why an entry cannot be used."""

    state: Literal["corrupt", "unreadable"]
    detail: str


class _Source(msgspec.Struct):
    source: str = ""


_KNOWN = frozenset(UnitEntry.__struct_fields__)
_decode = msgspec.json.Decoder(UnitEntry).decode
_decode_source = msgspec.json.Decoder(_Source).decode
_decode_schema = msgspec.json.Decoder(dict[str, Any]).decode


class NewerEntry(Exception):
    """Written by a newer Mainstay."""


def body_of(
    unit: Unit, outputs: Mapping[str, OutputFile], about: Origin, at_ms: int, *, kept: Mapping[str, Any]
) -> bytes:
    """An entry's body. `kept` are unknown fields of an older entry: they stay."""
    entry = UnitEntry(
        schema=SCHEMA,
        address=unit.address,
        study=unit.study,
        code=unit.code,
        params=dict(unit.params),
        seed=unit.seed,
        outputs=dict(sorted(outputs.items())),
        job=about.job,
        attempt=about.attempt,
        by=about.by,
        at_ms=at_ms,
    )
    own = {name: value for name, value in {**kept, **about.more}.items() if name not in _KNOWN}
    return msgspec.json.format(msgspec.json.encode({**msgspec.to_builtins(entry), **own}), indent=1)


def name_for(folder: str, body: bytes, outputs: Mapping[str, OutputFile]) -> str:
    sizes, contents = _digests(folder, outputs)
    own = hashlib.sha256(body).hexdigest()[:_OWN_DIGITS]
    return f"{ENTRY_PREFIX}{len(body)}-{sizes}-{contents}-{own}-{os.urandom(4).hex()}.json"


def read_name(name: str) -> Name | None:
    match = _NAME.fullmatch(name)
    return Name(int(match[1]), match[2], match[3], match[4] or "") if match else None


def read(folder: str, name: str, body: bytes) -> UnitEntry | Defect:
    """An intact entry, or its defect."""
    if not is_intact(folder, name, body):
        return Defect("corrupt", DAMAGED)
    try:
        return read_body(body)
    except NewerEntry:
        return Defect("unreadable", "its entry was written by a newer Mainstay: upgrade this one")
    except msgspec.DecodeError:
        return Defect("corrupt", DAMAGED)


def is_intact(folder: str, name: str, body: bytes) -> bool:
    """Whether an entry is what was written: every byte of it; of an earlier version, its unit and its files. A name
    that does not follow the rules proves nothing, so only the body counts."""
    parsed = read_name(name)
    if parsed is None:
        return True
    if parsed.length != len(body):
        return False
    if parsed.own:
        return hashlib.sha256(body).hexdigest()[:_OWN_DIGITS] == parsed.own
    try:
        entry = read_body(body)
        address = entry.unit.address
    except NewerEntry:
        return True
    except (msgspec.DecodeError, InvalidInput):
        return False
    expected = (1, address, (parsed.sizes, parsed.contents))
    return (entry.schema, entry.address, _digests(folder, entry.outputs)) == expected


def _digests(folder: str, outputs: Mapping[str, OutputFile]) -> tuple[str, str]:
    """Digests of the sizes and of the contents."""
    sizes = digest_of(folder, ((name, file.size) for name, file in outputs.items()))
    return sizes, digest_of(folder, ((name, file.sha256) for name, file in outputs.items()))


def digest_of(folder: str, facts: Iterable[tuple[str, int | str]]) -> str:
    """A digest of files with their sizes, or with their digests. It includes the unit, so that the entry of another
    unit does not fit here."""
    text = "\n".join([folder[-DIGITS:], *(f"{file}\0{fact}" for file, fact in sorted(facts))])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def read_body(body: bytes) -> UnitEntry:
    """Raises `msgspec.DecodeError` for a damaged entry, `NewerEntry` for a newer schema."""
    try:
        entry = _decode(body)
    except msgspec.ValidationError:
        if _schema(body) > SCHEMA:
            raise NewerEntry from None
        raise
    if entry.schema > SCHEMA:
        raise NewerEntry
    return entry


def source_in(body: bytes) -> str:
    """A digest of the source that made the outputs; empty if the entry has none."""
    try:
        return _decode_source(body).source
    except msgspec.DecodeError:
        return ""


def unknown_fields(body: bytes) -> dict[str, Any]:
    return {name: value for name, value in _decode_schema(body).items() if name not in _KNOWN}


def _schema(body: bytes) -> int:
    schema = _decode_schema(body).get("schema")
    return schema if isinstance(schema, int) else 0
