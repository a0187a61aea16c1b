"""The port of output files: files by name, in a folder, in memory or in a bucket.

- A **write** creates a whole file or none: a reader sees the file before, or all of the new one.
- **Absent** is None (or left out); the storage was asked and responded. **Denied** is `StoreDenied`, an **outage**
  `StoreUnavailable`. Calls for many files return a result for each, so that one bad folder does not hide the others.
- A **tag** changes with the content of a file: if size and tag are the same, a file that was read once is unchanged.

Names are checked by `check_key`; `folder/name` has one slash or more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from ...errors import StoreError

A = TypeVar("A")


class Blob(NamedTuple):
    """A file in a listing."""

    size: int
    tag: str


class OutputFile(msgspec.Struct, frozen=True):
    """The size and the digest of a file that was read or published."""

    size: int
    sha256: str


#: name in its folder -> the file
Files = dict[str, Blob]


class Blobs(Protocol):
    """See the module's docstring."""

    @property
    def place(self) -> str:
        """The URL that opened it, without secrets."""

    async def write(self, path: str, source: bytes | Path) -> Blob:
        """Write a file, from memory or from the disk; replaces a file of the same name."""

    async def read(self, paths: Sequence[str]) -> list[bytes | StoreError | None]:
        """Read small files."""

    async def digests(self, paths: Sequence[str]) -> list[OutputFile | StoreError | None]:
        """Read files to their ends, with little memory."""

    async def save(self, path: str, target: Path) -> OutputFile | None:
        """Copy a file to the disk. Returns what was copied; None if there is no such file."""

    async def find(self, folders: Sequence[str]) -> list[Files | StoreError]:
        """List each folder, with as few requests as possible. An absent folder is empty."""

    def walk(self, prefix: str) -> AsyncIterator[tuple[str, Files]]:
        """Every folder below a prefix that has files, in order; read in pages."""

    async def tops(self) -> list[str]:
        """The names of the folders at the top."""

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove files; absent ones are ignored."""

    async def close(self) -> None:
        """Release connections and threads."""


def or_raise(results: Sequence[A | StoreError]) -> list[A]:
    """The results of a call for many files; raises the first error among them."""
    good: list[A] = []
    for result in results:
        if isinstance(result, StoreError):
            raise result
        good.append(result)
    return good
