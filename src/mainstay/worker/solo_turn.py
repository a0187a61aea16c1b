"""Which engine of a worker may run a job with nothing beside it: one at a time.

Two jobs that are both suspected of killing whole workers must not be blamed for the same death. So the engines of a
worker share a lock, and only its holder runs such a job. It is a record lock on a file without a name that they
inherit: the system frees it when its process ends, whatever ended it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile


class SoloTurn:
    """One engine's view of the lock. `SoloTurn.create()` makes the file; its `fd` is what engines inherit."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def create(cls) -> SoloTurn:
        if hasattr(os, "memfd_create"):
            return cls(os.memfd_create("mainstay-solo-turn", os.MFD_CLOEXEC))
        with tempfile.TemporaryFile() as file:
            return cls(os.dup(file.fileno()))

    def take(self) -> bool:
        """Whether it is ours now; never waits."""
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
