"""Which engine of a worker may run a job alone: one at a time.

Two jobs that are suspected of killing whole workers must not be blamed for the same death. So the engines of a worker
share a lock, and only its holder runs such a job. It is a record lock on a file without a name that they inherit: the
system releases it when the process of the holder ends, for whatever reason.
"""

from __future__ import annotations

import fcntl
import os
from typing import Protocol

from .recorder import unnamed_file


class SoloLock(Protocol):
    """The lock, as an engine uses it. `SoloTurn` is one."""

    def take(self) -> bool:
        """Take the lock, if it is free; never waits."""
        ...

    def release(self) -> None:
        """Let another engine have it."""
        ...


class SoloTurn:
    """One engine's view of the lock. `SoloTurn.create()` creates the file; engines inherit its `fd`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def create(cls) -> SoloTurn:
        return cls(unnamed_file("mainstay-solo-turn"))

    def take(self) -> bool:
        """Take the lock, if it is free; never waits."""
        try:
            fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def release(self) -> None:
        """Let another engine have it."""
        fcntl.lockf(self.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self.fd)
