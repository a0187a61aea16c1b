"""The door: what is refused before anything is made, so that a wrong path leaves nothing behind.

The file is looked at through SQLite only. Another handle on it, when closed, would drop the locks of every connection
this process has to it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import apsw

from ...errors import StoreError
from .schema import admit


def side_folder(path: Path) -> Path:
    """Where locks and wake sockets of a database stand."""
    return path.with_name(path.name + "-mainstay")


def admit_path(path: Path, *, busy_timeout_s: float) -> None:
    """Refuse what cannot be, or is not, a database of ours."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode):
        raise StoreError(f"{path} is a folder; name a file in it")
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path} is not a regular file; is the path right?")
    if found.st_size == 0 or side_folder(path).is_dir():
        return  # new, or known to be ours: if it cannot be read any more, it is damaged
    # a log that is there is not ours to write back; where there is none, only a connection that may write leaves none
    has_log = path.with_name(path.name + "-wal").exists()
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY if has_log else apsw.SQLITE_OPEN_READWRITE)
    try:
        db.set_busy_timeout(int(busy_timeout_s * 1000))
        admit(db, str(path))
    except apsw.NotADBError:
        raise StoreError(f"{path} is not an SQLite database; is the path right?") from None
    finally:
        db.close()
