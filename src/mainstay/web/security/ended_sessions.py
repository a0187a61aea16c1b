"""Sessions that were ended by signing out, known to every server that uses the same file of tokens.

With a shared key (`MAINSTAY_SESSION_KEY`), servers accept each other's cookies, also after a restart. To make copies of
a cookie invalid after a sign-out, a folder beside the tokens has an empty file for each ended session, until the
session would have expired.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from pathlib import Path

from ...storage import make_private_folder

log = logging.getLogger("mainstay.web.security")

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class EndedSessions:
    """The folder of ended sessions. Without a folder, only this process knows them."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def __contains__(self, session_id: str) -> bool:
        return self._folder is not None and (self._folder / _checked(session_id)).exists()

    def add(self, session_id: str, expires_ms: int, *, now_ms: int) -> None:
        """Keep a session until it expires, and remove expired ones. If the folder cannot be written, a warning says
        that the session is ended in this process only."""
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
                "a session was ended on this server only: %s cannot be written (%s); until it expires, other "
                "servers with the same MAINSTAY_SESSION_KEY, and this one after a restart, accept its cookie",
                self._folder,
                error.strerror,
            )

    def _sweep(self, now_ms: int) -> None:
        assert self._folder is not None
        with os.scandir(self._folder) as entries:
            for each in entries:
                with contextlib.suppress(FileNotFoundError):  # another server was faster
                    if each.stat().st_mtime * 1000 < now_ms:
                        os.unlink(each.path)


def _checked(session_id: str) -> str:
    """The id as the name of a file."""
    return session_id if _ID.fullmatch(session_id) else "-"


__all__ = ["EndedSessions"]
