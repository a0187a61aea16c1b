"""Sessions that were ended by signing out, known to every server that uses the same file of tokens.

With a key of their own (`MAINSTAY_SESSION_KEY`), servers accept each other's cookies, and those of before a restart. So
that a copy of a cookie is worth nothing after its owner has signed out, an empty file for each ended session is kept in
a folder beside the tokens, until the session would have ended by itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from pathlib import Path

from ...storage.private_files import make_private_folder

log = logging.getLogger("mainstay.web.security")

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class EndedSessions:
    """The folder; without one, nothing is known beyond this process."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def __contains__(self, session_id: str) -> bool:
        return self._folder is not None and (self._folder / _checked(session_id)).exists()

    def add(self, session_id: str, expires_ms: int, *, now_ms: int) -> None:
        """Keep it until then; what is over is removed. A folder that cannot be written is reported: the session is
        ended in this process alone."""
        if self._folder is None:
            return
        path = self._folder / _checked(session_id)
        try:
            make_private_folder(self._folder)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            os.utime(path, (expires_ms / 1000, expires_ms / 1000))
            handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            self._sweep(now_ms)
        except OSError as error:
            log.warning(
                "a session was ended here only: %s cannot be written (%s); until it would have ended by itself, other "
                "servers with the same MAINSTAY_SESSION_KEY, and this one after a restart, accept its cookie",
                self._folder,
                error.strerror,
            )

    def _sweep(self, now_ms: int) -> None:
        assert self._folder is not None
        with os.scandir(self._folder) as found:
            for each in found:
                with contextlib.suppress(FileNotFoundError):  # another server was faster
                    if each.stat().st_mtime * 1000 < now_ms:
                        os.unlink(each.path)


def _checked(session_id: str) -> str:
    """As a name of a file."""
    return session_id if _ID.fullmatch(session_id) else "-"


__all__ = ["EndedSessions"]
