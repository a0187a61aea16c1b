"""The log in the store: commits in sequence, and the head, where a reader begins.

- `log/<number>` one commit. The process that creates the key makes the commit; only one can.
- `snapshot/<number>-<id>/<part>` everything up to a commit, written once.
- `events/<first>-<last>` the events of these commits, kept forever.
- `head` the newest snapshot, the key of the audit trail, and how far commits were removed.
- `sessions/<id>` one session and its heartbeat (`sessions.py`).

A registry has an identity: random, created with its head, and part of every commit, snapshot and session. A place can
hold another registry than it did when this process opened it: its disk was unmounted and a program created a new one,
or an operator cleared the bucket. So a process reads the head before it commits and compares the identity. It refuses a
registry that is not its own, and skips a commit of another registry in its own log.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from ...errors import StoreDamaged, StoreError, StoreReplaced, StoreUnavailable
from ..versioned import VersionedStore, WriteUnsure
from .documents import Line
from .files import SCHEMA, check_schema, damaged, encoded, packed, unpacked

log = logging.getLogger("mainstay.stores.registry")

HEAD = "head"

#: makes an id that was never used before
NewId = Callable[[], str]
#: the keys of a registry whose head is gone
_REMAINS = ("log/", "snapshot/", "events/")


def random_id() -> str:
    """From the operating system: a forked process must not make the same ids as its parent."""
    return uuid4().hex


def commit_key(number: int) -> str:
    """
    >>> commit_key(12)
    'log/000000000012'
    """
    return f"log/{number:012d}"


def no_registry(place: str) -> StoreError:
    return StoreError(
        f"there is no job registry in {place}; the first program that uses it creates one. Is this the right place?"
    )


def head_gone(where: str) -> StoreDamaged:
    return StoreDamaged(
        f"{where} is gone: restore it from an older version of the object; the snapshot and the commits still exist"
    )


class Commit(msgspec.Struct, frozen=True):
    """One commit as it was read."""

    number: int
    id: str
    by: str
    registry: str
    """the identity of its registry; "" if its writer is a version without identities"""
    lines: list[tuple[bytes, Line]]
    size: int


class LogHead(msgspec.Struct, frozen=True, kw_only=True):
    """Where a reader begins."""

    schema: tuple[int, int] = SCHEMA
    audit: str = ""
    """fingerprint of the key that seals the audit trail"""
    snapshot: str = ""
    """the folder of its parts; "": there is none"""
    number: int = 0
    """the last commit in it"""
    parts: int = 0
    size: int = 0
    """bytes of all parts"""
    at_ms: int = 0
    past: tuple[tuple[int, int], ...] = ()
    """(number, at_ms) of earlier snapshots, about one an hour for about two days"""
    removed: int = 0
    """commits up to here were removed"""
    identity: str = ""
    """different for every registry; "" if it was created without one, until the next commit"""
    identity_added: bool = False
    """it was created without an identity and got one later"""
    made_ms: int = 0
    """when the registry was created; 0: not known"""


class SeenHead(msgspec.Struct, frozen=True):
    """The head as it was read, and its version."""

    head: LogHead
    version: str
    raw: dict[str, Any]

    def document(self, head: LogHead) -> bytes:
        """Another head. Unknown fields of a newer program stay."""
        return encoded({**self.raw, **msgspec.to_builtins(head)})


class Log:
    """The store as a log."""

    def __init__(self, store: VersionedStore, *, writer: str = "", new_id: NewId | None = None) -> None:
        self.store = store
        self.new_id = new_id or random_id
        self.writer = writer or f"{socket.gethostname()}:{os.getpid()}"
        self.identity: str | None = None
        """of the registry that this process opened; None before the head is read"""

    async def read(self, number: int) -> Commit | None:
        """A commit; None if there is none yet."""
        key = commit_key(number)
        stored = await self.store.get(key)
        if stored is None:
            return None
        lines = unpacked(stored.value, self.where(key))
        header = lines[0][1]
        writer, registry = str(header.get("by", "")), str(header.get("registry", ""))
        return Commit(number, str(header.get("id", "")), writer, registry, lines, len(stored.value))

    async def is_foreign(self, commit: Commit) -> bool:
        """Whether a commit belongs to another registry: a process that had opened an earlier registry in this place
        wrote it. All readers skip it, so they agree. Raises `StoreReplaced` if this process is the one that opened
        another registry.

        A commit without an identity is not foreign: programs of the previous version make such commits.
        """
        if commit.registry in ("", self.identity):
            return False
        await self.confirm()  # raises if the log is another one; an older registry may have got its identity
        if commit.registry == self.identity:
            return False
        log.warning(
            "%s was written by a process (%s) of another registry that was in this place before; it is skipped. "
            "Restart that process",
            self.where(commit_key(commit.number)),
            commit.by,
        )
        return True

    async def create(self, number: int, commit_id: str, lines: Sequence[bytes], at_ms: int) -> int | None:
        """Make a commit. Returns its size in bytes; None if another process has made it.

        Raises `WriteUnsure` if the outcome is unknown.
        """
        header = {"t": "commit", "schema": SCHEMA, "n": number, "id": commit_id, "by": self.writer, "at_ms": at_ms}
        body = packed([encoded({**header, **self.mark()}), *lines])
        try:
            made = await self.store.create_if_absent(commit_key(number), body)
        except WriteUnsure as unsure:
            return len(body) if await self._is_ours(number, commit_id, unsure) else None
        return len(body) if made else None

    async def _is_ours(self, number: int, commit_id: str, unsure: WriteUnsure) -> bool:
        try:
            if await unsure.mine():
                return True
            commit = await self.read(number)
        except StoreUnavailable as error:
            raise unsure from error
        if commit is None:
            raise unsure  # the write may still be under way
        return commit.id == commit_id

    async def head(self) -> SeenHead | None:
        stored = await self.store.get(HEAD)
        if stored is None:
            return None
        try:
            raw = msgspec.json.decode(stored.value)
            check_schema(raw, self.where(HEAD))
            seen = SeenHead(msgspec.convert(raw, LogHead), stored.version, raw)
        except (msgspec.MsgspecError, LookupError, TypeError) as error:
            raise damaged(self.where(HEAD), error) from None
        self._compare(seen.head)
        return seen

    async def confirm(self) -> SeenHead:
        """Read the head. Raises `StoreReplaced` if it is that of another registry, and `StoreDamaged` if it is gone."""
        if seen := await self.head():
            return seen
        raise head_gone(self.where(HEAD))

    async def confirm_to_write(self) -> None:
        """The same before a write. A registry without an identity gets one here."""
        while not (seen := await self.confirm()).head.identity:
            head = msgspec.structs.replace(seen.head, identity=self.new_id(), identity_added=True)
            await self.move_head(seen, head)

    def mark(self) -> dict[str, str]:
        """The field that names the registry in everything that is written."""
        return {"registry": self.identity} if self.identity else {}

    def _compare(self, head: LogHead) -> None:
        added = self.identity == "" and head.identity_added
        if self.identity is None or added:
            self.identity = head.identity
        elif head.identity != self.identity:
            raise StoreReplaced(
                f"{self.store.place} holds another job registry (identity {head.identity or 'unknown'}) than the one "
                f"that this process opened there (identity {self.identity or 'unknown'}): that one was moved, removed "
                "or unmounted. Nothing was written. If the new registry is the right one, restart this process. If the "
                "old one is, stop the programs that use the new one and bring the old one back: this process then "
                "continues by itself"
            )

    async def existing_head(self) -> SeenHead:
        """The head; raises if there is none."""
        if seen := await self.head():
            return seen
        raise no_registry(self.store.place)

    async def begin(self, head: LogHead) -> SeenHead:
        """The head, created if there is none. If the head was lost and the log is complete, it is created from the
        log."""
        while True:
            if seen := await self.head():
                return seen
            first = await self.read(1)
            if first is None and (remains := await self._remains()):
                if seen := await self.head():  # created by another process at this moment
                    return seen
                raise StoreDamaged(
                    f"{self.where(HEAD)} is missing, and other parts of a job registry ({remains}) exist: restore the "
                    "head from an older version of the object, or use an empty place; nothing was changed"
                )
            identity = first.registry if first else self.new_id()
            created = msgspec.structs.replace(head, identity=identity)
            await self.store.create_if_absent(HEAD, encoded(msgspec.to_builtins(created)))

    async def _remains(self) -> str:
        for prefix in _REMAINS:
            if keys := await self.store.list_keys(prefix, limit=1):
                return keys[0]
        return ""

    async def move_head(self, seen: SeenHead, head: LogHead) -> bool:
        """Replace the head; False if another process has replaced it."""
        return await self.store.put(HEAD, seen.document(head), seen.version) is not None

    def where(self, key: str) -> str:
        return f"{key} in {self.store.place}"
