"""Session locks: proof that a process on this machine is dead, without a guess from its silence.

The process of a session holds an exclusive lock on a file of the session until it ends, in whatever way. A free lock
means that the process is dead. The lease covers what a lock cannot show: a process that hangs.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ...errors import Conflict
from ..session_names import is_session_name


class SessionFileLocks:
    """The session locks of this process, and a look at those of others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(exist_ok=True)
        self._held: dict[str, int] = {}

    def hold(self, session: str) -> None:
        if session in self._held:
            return
        handle = os.open(self._folder / session, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise Conflict(f"session {session} is open in another process, which is alive; use a fresh id") from None
        except BaseException:
            os.close(handle)
            raise
        self._held[session] = handle

    def release(self, session: str) -> None:
        """Release the lock of a session that is over, and remove its file, also for a session of a dead process."""
        self.forget(session)
        handle = self._held.pop(session, None)
        if handle is not None:
            os.close(handle)

    def is_free(self, session: str) -> bool:
        """True if the session had a lock that is free now. A session that was opened for another process never had one;
        for it, the lease decides."""
        if session in self._held or not is_session_name(session):
            return False
        try:
            handle = os.open(self._folder / session, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(handle)
        return True

    def forget(self, session: str) -> None:
        if is_session_name(session):
            (self._folder / session).unlink(missing_ok=True)

    def close(self) -> None:
        """Release all locks as a dying process would: the files stay."""
        for handle in self._held.values():
            os.close(handle)
        self._held.clear()
