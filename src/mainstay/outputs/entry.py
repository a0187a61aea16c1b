"""The entry of a unit: published last, it says what was published. Without one, nothing was.

Its name holds its own length, digests of the unit with its files' sizes and with their contents, and something that
nobody else writes:

    _entry-<bytes>-<12 hex of the sizes>-<12 hex of the contents>-<8 hex>.json

So a listing alone tells that a unit is whole, without a request for each entry. Two publishers of one unit write two
entries; the one that fits the files is the one that holds.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from .address import Unit
from .layout import DIGITS

SCHEMA = 1
PREFIX = "_entry-"
_NAME = re.compile(r"_entry-(\d{1,12})-([0-9a-f]{12})-([0-9a-f]{12})-[0-9a-f]{8}\.json")


class File(msgspec.Struct, frozen=True):
    """One output as it was published."""

    size: int
    sha256: str


class About(msgspec.Struct, frozen=True, kw_only=True):
    """Who made outputs: for whoever asks later."""

    job: str | None = None
    attempt: int | None = None
    by: str | None = None
    """a worker, a person, a program"""
    more: Mapping[str, Any] = {}
    """fields of your own"""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What was published for a unit."""

    schema: int
    address: str
    outputs: dict[str, File]
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


_KNOWN = frozenset(Entry.__struct_fields__)
_decode = msgspec.json.Decoder(Entry).decode
_decode_schema = msgspec.json.Decoder(dict[str, Any]).decode


class NewerEntry(Exception):
    """Written by a newer Mainstay."""


def made(unit: Unit, outputs: Mapping[str, File], about: About, at_ms: int, *, kept: Mapping[str, Any]) -> bytes:
    """An entry's body. `kept` are the fields of an older one that we do not know: they stay."""
    entry = Entry(
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


def name_for(folder: str, body: bytes, outputs: Mapping[str, File]) -> str:
    sizes = digest_of(folder, ((file, found.size) for file, found in outputs.items()))
    contents = digest_of(folder, ((file, found.sha256) for file, found in outputs.items()))
    return f"{PREFIX}{len(body)}-{sizes}-{contents}-{os.urandom(4).hex()}.json"


def read_name(name: str) -> Name | None:
    found = _NAME.fullmatch(name)
    return Name(int(found[1]), found[2], found[3]) if found else None


def digest_of(folder: str, facts: Iterable[tuple[str, int | str]]) -> str:
    """Of files and their sizes, or of files and their digests; of this unit: another's entry does not fit here."""
    text = "\n".join([folder[-DIGITS:], *(f"{file}\0{fact}" for file, fact in sorted(facts))])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def read_body(body: bytes) -> Entry:
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


def unknown_fields(body: bytes) -> dict[str, Any]:
    return {name: value for name, value in _decode_schema(body).items() if name not in _KNOWN}


def _schema(body: bytes) -> int:
    found = _decode_schema(body).get("schema")
    return found if isinstance(found, int) else 0
