"""What a versioned store can do: named values, each with a version, changed only by whoever has seen the last one.

Five calls, the same on a folder, on a bucket of any cloud, in a table or in a key-value store. Values are bytes; what
they mean is the caller's. A process that dies holds nobody up: on servers there are no locks, and those of folders and
SQLite files, which their writers take turns by, end with their holder. Such a writer waits for at most `busy_timeout`,
then raises `StoreLocked`, and nothing was written. Readers wait for nobody.

- A **conflict** (somebody else changed it first, or made it, or removed it) is an answer: None or False. Read again,
  decide again, write again; `update` does that.
- An **outage** is `StoreUnavailable`, never an answer: "not there" is said only by a store that was asked and looked.
  If one comes while a value is written, nobody knows whether it was: `WriteUnsure`, which can be asked later. After any
  other outage nothing was written. After one during a delete, read again.
- A version is opaque, of this key in this store only, and never comes back: a value that is written again, byte for
  byte, or removed and made again, has another version.
- A read sees every write that was answered before it began.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

import msgspec

from ...errors import StoreUnavailable


class Versioned(msgspec.Struct, frozen=True):
    """A value as it was when it was read."""

    value: bytes
    version: str


class WriteUnsure(StoreUnavailable):
    """The store went away during a `put` or a `create_if_absent`, which may have been done.

    `mine` looks: the version of what is there now, if it is what was to be written then, by this very call and not the
    same bytes of another; else None. None may also mean that others have written since, or that it is still under way.
    """

    def __init__(self, message: str, mine: Callable[[], Awaitable[str | None]]) -> None:
        self.mine = mine
        super().__init__(message)


@runtime_checkable
class VersionedStore(Protocol):
    """See the module's head. Keys are checked by `check_key` at the door of every adapter."""

    @property
    def place(self) -> str:
        """The URL it was opened by, without secrets: for messages."""

    async def get(self, key: str) -> Versioned | None:
        """The value and its version; None if there is none."""

    async def put(self, key: str, value: bytes, version: str) -> str | None:
        """Replace the value if it still has this version: its new version. None: it has another, or is gone."""

    async def create_if_absent(self, key: str, value: bytes) -> str | None:
        """Make it if there is none: its version. None: there is one."""

    async def delete(self, key: str, version: str) -> bool:
        """Remove it if it still has this version. False: it has another, or is gone."""

    async def list_keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        """Keys that begin with a prefix, in the order of their bytes, those after a key only; at most `limit`.

        Fewer than `limit` means that there are no more. The last key of a page is `after` of the next.
        """

    async def close(self) -> None:
        """Let go of connections and files. A closed store raises `StoreClosed`."""
