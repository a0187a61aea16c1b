"""The port of versioned stores: named values, each with a version. A write succeeds only with the current version.

Five calls, the same on a folder, on a bucket of any cloud, in a table or in a key-value store. Values are bytes; their
meaning belongs to the caller. A process that dies delays no other: servers have no locks, and the locks of folders and
SQLite files, by which writers take turns, end with their holder. Such a writer waits for at most `busy_timeout`, then
raises `StoreLocked`, and nothing was written. Readers do not wait.

- A **conflict** (another writer changed, created or deleted the value first) is a return value: None or False. Read
  again, decide again, write again; `update` does that.
- An **outage** is `StoreUnavailable` and never looks like a missing value. If it happens during a write, the outcome is
  unknown: `WriteUnsure`, which can check later. After any other outage nothing was written. After an outage during a
  delete, read again.
- A version is opaque, belongs to one key in one store, and is never reused: a value that is written again, byte for
  byte, or deleted and created again, has another version.
- A read sees every write that was acknowledged before it began.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

import msgspec

from ...errors import StoreUnavailable


class Versioned(msgspec.Struct, frozen=True):
    """A value as it was read."""

    value: bytes
    version: str


class WriteUnsure(StoreUnavailable):
    """The store became unreachable during a `put` or a `create_if_absent`, which may have succeeded.

    `mine` checks: it returns the version of the stored value if this very call wrote it (and not another one with the
    same bytes), else None. None may also mean that others have written since, or that the write is still under way.
    """

    def __init__(self, message: str, mine: Callable[[], Awaitable[str | None]]) -> None:
        self.mine = mine
        super().__init__(message)


@runtime_checkable
class VersionedStore(Protocol):
    """See the module's docstring. Every adapter checks keys with `check_key`."""

    @property
    def place(self) -> str:
        """The URL that opened it, without secrets, for messages."""

    async def get(self, key: str) -> Versioned | None:
        """The value and its version; None if there is none."""

    async def put(self, key: str, value: bytes, version: str) -> str | None:
        """Replace the value if it still has this version. Returns its new version; None if it has another or is
        gone."""

    async def create_if_absent(self, key: str, value: bytes) -> str | None:
        """Create the value if there is none. Returns its version; None if there is one."""

    async def delete(self, key: str, version: str) -> bool:
        """Delete the value if it still has this version; False if it has another or is gone."""

    async def list_keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        """Keys with a prefix, in byte order, after the key `after`; at most `limit`.

        A page with fewer than `limit` keys is the last. The last key of a page is the `after` of the next.
        """

    async def close(self) -> None:
        """Release connections and files. A closed store raises `StoreClosed`."""
