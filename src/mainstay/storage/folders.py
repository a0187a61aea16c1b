"""A folder that Mainstay keeps data in: its marker file, its subfolders, and the errors of its file system.

The marker says what the folder holds. If it is missing, the disk of the folder is not mounted: an outage, and not an
absent file.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from ..errors import SchemaTooNew, StoreDenied, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from .private_files import make_private_folder


class DataFolder:
    """The folder of a store.

    `denied` is the error for missing permissions. With `sync=False` nothing is forced to the disk. `remembered_depth`
    is the depth down to which subfolders are remembered as created; None: all of them.
    """

    def __init__(
        self,
        path: Path,
        *,
        place: str,
        marker: str,
        content: bytes,
        denied: type[StoreError] = StoreDenied,
        sync: bool = True,
        remembered_depth: int | None = None,
    ) -> None:
        self.path = path.absolute()
        self.place = place or f"file://{self.path}"
        self.marker = self.path / marker
        self._content = content
        self._denied = denied
        self._sync = sync
        self._remembered_depth = remembered_depth
        self._root = str(self.path)
        self._durable = {self._root}
        """folders whose own names are on the disk"""

    def create(self) -> None:
        """Create the folder, for its owner alone, if it does not exist. Its parent has to exist."""
        self.check_parent()
        with contextlib.suppress(FileExistsError):
            make_private_folder(self.path)

    def check_parent(self) -> None:
        if not self.path.parent.is_dir():
            raise StoreError(f"the parent of {self.path} does not exist; create it first")

    def write_marker(self, draft: Path) -> None:
        """Write the marker as `draft`, and rename it when it is on the disk."""
        with draft.open("wb") as file:
            file.write(self._content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.marker)
        force_names(self.path)

    def check_marker(self) -> None:
        """Refuse a folder with another content."""
        if (found := self.marker.read_bytes()) != self._content:
            raise SchemaTooNew(
                f"{self.path} is of a kind this Mainstay does not know ({found[:80]!r}): "
                "upgrade Mainstay in this environment; nothing was changed"
            )

    def check_mounted(self) -> None:
        if not self.marker.exists():
            raise StoreUnavailable(
                f"{self.path} is not the folder it was: {self.marker.name} is missing. Is its disk mounted?"
            )

    def make_subfolder(self, folder: str) -> None:
        """Create a subfolder. The name of an existing one is forced to the disk as well: its creator may have died
        before it did so."""
        if folder in self._durable:
            return
        parent = os.path.dirname(folder)
        self.make_subfolder(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        self.force(parent)
        if self._remembered_depth is None or folder.count("/") - self._root.count("/") <= self._remembered_depth:
            self._durable.add(folder)

    def forget_subfolders(self) -> None:
        """Another program has removed folders: check all of them again."""
        self._durable = {self._root}

    def remove_if_empty(self, folder: str) -> None:
        """Remove an empty subfolder, and its parents that become empty."""
        with contextlib.suppress(OSError):
            while folder != self._root:
                os.rmdir(folder)
                self._durable.discard(folder)
                folder = os.path.dirname(folder)

    def force(self, folder: str) -> None:
        """Force the names in a subfolder to the disk, unless another process has removed it."""
        if self._sync:
            with contextlib.suppress(FileNotFoundError):
                force_names(folder)

    def translated(self, error: OSError) -> StoreError:
        """The store's error for an error of the file system."""
        detail = f"{error.filename or self.path}: {error.strerror}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreFull(f"no space left for {self.place} ({detail}). Free space, then try again")
        if error.errno == errno.EROFS:
            return StoreReadOnly(f"{self.place} cannot be written ({detail}); mount it for writing")
        if error.errno in (errno.EACCES, errno.EPERM):
            return self._denied(f"access to {self.place} is denied ({detail}); check owner and permissions")
        return StoreUnavailable(f"the file system of {self.place} failed ({detail}); check its disk, then try again")


def force_names(folder: str | Path) -> None:
    """Force the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
