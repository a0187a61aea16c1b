"""Locks on files, between processes. A lock ends with its process, however that ends."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Self

#: a thread that waits for a lock cannot be cancelled, so a waiting task asks again after this time
_POLL_S = 0.05


class FileLock:
    """A held lock. `release` gives it back; a second call does nothing."""

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def try_lock(path: Path, *, shared: bool = False) -> FileLock | None:
    """The lock on a file, which is created if it does not exist; None: another process or task holds it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        # a file that was removed since it was opened locks nothing
        if os.fstat(handle).st_nlink:
            return FileLock(handle)
    except BlockingIOError:
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


async def wait_for_lock(path: Path, *, shared: bool = False) -> FileLock:
    """The lock on a file, as soon as it is free."""
    while (lock := try_lock(path, shared=shared)) is None:  # noqa: ASYNC110 - another process gives no event
        await asyncio.sleep(_POLL_S)
    return lock


__all__ = ["FileLock", "try_lock", "wait_for_lock"]
