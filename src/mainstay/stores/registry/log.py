"""The log in the store: commits one after the other, and the head, which says where to begin.

- `log/<number>` one commit. Whoever makes the key makes the commit; nobody can make it twice.
- `snapshot/<number>-<id>/<part>` everything up to a commit, written once.
- `events/<first>-<last>` the events of these commits, for good.
- `head` the newest snapshot, the key of the audit trail, and how far commits were removed.
- `sessions/<id>` one session and its heartbeat (`sessions.py`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

import msgspec

from ...errors import StoreError, StoreUnavailable
from ..versioned import VersionedStore, WriteUnsure
from .documents import Line
from .files import SCHEMA, check_schema, damaged, encoded, packed, unpacked

HEAD = "head"


def commit_key(number: int) -> str:
    """
    >>> commit_key(12)
    'log/000000000012'
    """
    return f"log/{number:012d}"


def no_registry(place: str) -> StoreError:
    return StoreError(
        f"there is no job registry in {place}; the first program that uses it makes one. Is this the right place?"
    )


class Commit(msgspec.Struct, frozen=True):
    """One commit as it was read."""

    number: int
    id: str
    by: str
    lines: list[tuple[bytes, Line]]
    size: int


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Where a reader begins."""

    schema: tuple[int, int] = SCHEMA
    audit: str = ""
    """fingerprint of the key that seals the trail"""
    snapshot: str = ""
    """the folder of its parts; "" for none"""
    number: int = 0
    """the last commit in it"""
    parts: int = 0
    size: int = 0
    """bytes of all parts"""
    at_ms: int = 0
    past: tuple[tuple[int, int], ...] = ()
    """(number, at_ms) of snapshots before it, about one an hour for a day and a bit"""
    removed: int = 0
    """commits up to here were removed"""


class SeenHead(msgspec.Struct, frozen=True):
    """The head, and what it takes to replace it."""

    head: Head
    version: str
    raw: dict[str, Any]

    def document(self, head: Head) -> bytes:
        """Another head; what a newer program wrote beside what we know stays."""
        return encoded({**self.raw, **msgspec.to_builtins(head)})


class Log:
    """The store as a log."""

    def __init__(self, store: VersionedStore, *, writer: str = "") -> None:
        self.store = store
        self.writer = writer or f"{socket.gethostname()}:{os.getpid()}"

    async def read(self, number: int) -> Commit | None:
        """A commit; None if there is none yet."""
        key = commit_key(number)
        found = await self.store.get(key)
        if found is None:
            return None
        lines = unpacked(found.value, self.where(key))
        header = lines[0][1]
        return Commit(number, str(header.get("id", "")), str(header.get("by", "")), lines, len(found.value))

    async def create(self, number: int, commit_id: str, lines: Sequence[bytes], at_ms: int) -> int | None:
        """Make a commit: its size in bytes. None: somebody else has made it.

        Raises `WriteUnsure` if it may have been made all the same.
        """
        header = {"t": "commit", "schema": SCHEMA, "n": number, "id": commit_id, "by": self.writer, "at_ms": at_ms}
        body = packed([encoded(header), *lines])
        try:
            made = await self.store.create_if_absent(commit_key(number), body)
        except WriteUnsure as unsure:
            return len(body) if await self._is_ours(number, commit_id, unsure) else None
        return len(body) if made else None

    async def _is_ours(self, number: int, commit_id: str, unsure: WriteUnsure) -> bool:
        try:
            if await unsure.mine():
                return True
            found = await self.read(number)
        except StoreUnavailable as error:
            raise unsure from error
        if found is None:
            raise unsure  # it may still be on its way
        return found.id == commit_id

    async def head(self) -> SeenHead | None:
        found = await self.store.get(HEAD)
        if found is None:
            return None
        try:
            raw = msgspec.json.decode(found.value)
            check_schema(raw, self.where(HEAD))
            return SeenHead(msgspec.convert(raw, Head), found.version, raw)
        except (msgspec.MsgspecError, LookupError, TypeError) as error:
            raise damaged(self.where(HEAD), error) from None

    async def there(self) -> SeenHead:
        """The head; raises if there is none."""
        if found := await self.head():
            return found
        raise no_registry(self.store.place)

    async def begin(self, head: Head) -> SeenHead:
        """The head, made if there is none."""
        while True:
            if found := await self.head():
                return found
            await self.store.create_if_absent(HEAD, encoded(msgspec.to_builtins(head)))

    async def move_head(self, seen: SeenHead, head: Head) -> bool:
        """False: somebody else has moved it."""
        return await self.store.put(HEAD, seen.document(head), seen.version) is not None

    def where(self, key: str) -> str:
        return f"{key} in {self.store.place}"
