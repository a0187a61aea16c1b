"""The entry of a unit: published last, it says what was published. Without one, nothing was.

Its name holds its own length, digests of the unit with its files' sizes and with their contents, a digest of the entry
itself, and a random part that makes it unique:

    _entry-<bytes>-<12 hex of the sizes>-<12 hex of the contents>-<16 hex of the entry>-<8 hex>.json

So a listing alone tells that the sizes fit, and a changed bit in the entry shows against its own name: a damaged entry
vouches for nothing. Two publishers of one unit write two entries; the one that fits the files is the one that holds.
Entries of earlier versions have no digest of their own; their name must fit the files that they list (`is_intact`).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from ..errors import InvalidInput
from .address import Unit
from .layout import DIGITS

SCHEMA = 1
PREFIX = "_entry-"
#: a field of `Origin.more`: a digest of the source that made the outputs
SOURCE = "source"
DAMAGED = "its entry is damaged"
_OWN_DIGITS = 16
_NAME = re.compile(r"_entry-(\d{1,12})-([0-9a-f]{12})-([0-9a-f]{12})(?:-([0-9a-f]{16}))?-[0-9a-f]{8}\.json")


class OutputFile(msgspec.Struct, frozen=True):
    """One output as it was published."""

    size: int
    sha256: str


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who made outputs: for whoever asks later."""

    job: str | None = None
    attempt: int | None = None
    by: str | None = None
    """a worker, a person, a program"""
    more: Mapping[str, Any] = {}
    """fields of your own"""


class UnitEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What was published for a unit."""

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


class Name(NamedTuple):
    """What an entry's name says."""

    length: int
    sizes: str
    contents: str
    own: str
    """of the entry itself; empty: written by an earlier version"""


class _Source(msgspec.Struct):
    source: str = ""


_KNOWN = frozenset(UnitEntry.__struct_fields__)
_decode = msgspec.json.Decoder(UnitEntry).decode
_decode_source = msgspec.json.Decoder(_Source).decode
_decode_schema = msgspec.json.Decoder(dict[str, Any]).decode


class NewerEntry(Exception):
    """Written by a newer Mainstay."""


def made(unit: Unit, outputs: Mapping[str, OutputFile], about: Origin, at_ms: int, *, kept: Mapping[str, Any]) -> bytes:
    """An entry's body. `kept` are the fields of an older one that we do not know: they stay."""
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
    sizes = digest_of(folder, ((file, found.size) for file, found in outputs.items()))
    contents = digest_of(folder, ((file, found.sha256) for file, found in outputs.items()))
    own = hashlib.sha256(body).hexdigest()[:_OWN_DIGITS]
    return f"{PREFIX}{len(body)}-{sizes}-{contents}-{own}-{os.urandom(4).hex()}.json"


def read_name(name: str) -> Name | None:
    found = _NAME.fullmatch(name)
    return Name(int(found[1]), found[2], found[3], found[4] or "") if found else None


def is_intact(folder: str, name: str, body: bytes) -> bool:
    """Whether an entry is what was written: every byte of it; of an earlier version, its unit and its files. A name
    that does not follow the rules proves nothing, so the body has to speak for itself."""
    told = read_name(name)
    if told is None:
        return True
    if told.length != len(body):
        return False
    if told.own:
        return hashlib.sha256(body).hexdigest()[:_OWN_DIGITS] == told.own
    try:
        found = read_body(body)
        address = Unit(found.study, found.code, found.params, found.seed).address
    except NewerEntry:
        return True
    except (msgspec.DecodeError, InvalidInput):
        return False
    sizes = digest_of(folder, ((file, one.size) for file, one in found.outputs.items()))
    contents = digest_of(folder, ((file, one.sha256) for file, one in found.outputs.items()))
    return (found.schema, found.address, sizes, contents) == (1, address, told.sizes, told.contents)


def digest_of(folder: str, facts: Iterable[tuple[str, int | str]]) -> str:
    """Of files and their sizes, or of files and their digests; of this unit: another's entry does not fit here."""
    text = "\n".join([folder[-DIGITS:], *(f"{file}\0{fact}" for file, fact in sorted(facts))])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def read_body(body: bytes) -> UnitEntry:
    """Raises msgspec.DecodeError for what is damaged, NewerEntry for what we cannot know."""
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
    """A digest of the source that made the outputs; empty if the entry does not tell."""
    try:
        return _decode_source(body).source
    except msgspec.DecodeError:
        return ""


def unknown_fields(body: bytes) -> dict[str, Any]:
    return {name: value for name, value in _decode_schema(body).items() if name not in _KNOWN}


def _schema(body: bytes) -> int:
    found = _decode_schema(body).get("schema")
    return found if isinstance(found, int) else 0
