"""Knowing that a process on this machine is dead, without guessing from its silence.

A session opened by a process holds an exclusive lock on a file of its own until the process ends, however it
ends. A free lock means dead now. A lease covers what a lock cannot show: a process that hangs.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ...errors import Conflict
from ..session_names import is_session_name


class SessionFileLocks:
    """The session locks this process holds, and a look at everybody else's."""

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
            raise Conflict(f"session {session} is open elsewhere, and alive; open one with a fresh id") from None
        except BaseException:
            os.close(handle)
            raise
        self._held[session] = handle

    def release(self, session: str) -> None:
        """Let go of a session that is over; one of another process (it died, and was buried from here) leaves its file
        behind otherwise."""
        self.forget(session)
        handle = self._held.pop(session, None)
        if handle is not None:
            os.close(handle)

    def is_free(self, session: str) -> bool:
        """True if the session had a lock and nobody holds it any more. One opened on behalf of another process never
        had one; its lease alone decides."""
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
        """Let go as a dying process would: the files stay, the locks are free."""
        for handle in self._held.values():
            os.close(handle)
        self._held.clear()
