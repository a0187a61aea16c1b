"""Files by name, in a folder, in memory or in a bucket: as much of it as outputs need.

- A **write** makes a whole file or none: a reader sees what was there before, or all of it.
- **Absent** is None (or left out), an answer of storage that was asked. **Denied** is `StoreDenied`, an **outage**
  `StoreUnavailable`. Calls that ask for many answer for each, so that one bad folder does not hide the others.
- A **tag** changes when a file gets another content: with the size it tells whether what was read once is still that.

Names are checked by `check_key`; `folder/name` has one slash or more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from ...errors import StoreError


class Blob(NamedTuple):
    """A file as a listing shows it."""

    size: int
    tag: str


class Digest(NamedTuple):
    """A file as it was read to its end."""

    size: int
    sha256: str


#: name in its folder -> the file
Files = dict[str, Blob]


class Blobs(Protocol):
    """See the module's head."""

    @property
    def place(self) -> str:
        """The URL it was opened by, without secrets."""

    async def write(self, path: str, source: bytes | Path) -> Blob:
        """Write a file, from memory or from the disk; another of this name is replaced."""

    async def read(self, paths: Sequence[str]) -> list[bytes | StoreError | None]:
        """Small files, whole."""

    async def digests(self, paths: Sequence[str]) -> list[Digest | StoreError | None]:
        """Read files to their ends, in little memory."""

    async def save(self, path: str, target: Path) -> Digest | None:
        """Copy a file to the disk. What it is by then is told; None: there is none."""

    async def find(self, folders: Sequence[str]) -> list[Files | StoreError]:
        """What stands in each folder, with as few requests as that takes. An absent folder is an empty one."""

    def walk(self, prefix: str) -> AsyncIterator[tuple[str, Files]]:
        """Every folder below a prefix that has files, in order; paged, so that it may be long."""

    async def tops(self) -> list[str]:
        """The names of the folders at the top."""

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove files; those that are not there are no trouble."""

    async def close(self) -> None:
        """Let go of connections and threads."""
