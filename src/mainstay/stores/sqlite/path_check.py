"""Refusals before anything is created, so that a wrong path leaves nothing behind.

The file is read through SQLite only. Closing any other handle on it would drop the locks of all connections that this
process has to it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import apsw

from ...errors import StoreError
from .schema import admit


def side_folder(path: Path) -> Path:
    """The folder of the locks and wake sockets of a database."""
    return path.with_name(path.name + "-mainstay")


def admit_path(path: Path, *, busy_timeout_s: float) -> None:
    """Refuse a path that cannot be, or is not, a database of ours."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode):
        raise StoreError(f"{path} is a folder; name a file in it")
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path} is not a regular file; check the path")
    if found.st_size == 0 or side_folder(path).is_dir():
        return  # new, or known to be ours: if it cannot be read, it is damaged
    # an existing log must not be written back; without a log, only a writable connection leaves none behind
    has_log = path.with_name(path.name + "-wal").exists()
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY if has_log else apsw.SQLITE_OPEN_READWRITE)
    try:
        db.set_busy_timeout(int(busy_timeout_s * 1000))
        admit(db, str(path))
    except apsw.NotADBError:
        raise StoreError(f"{path} is not an SQLite database; check the path") from None
    finally:
        db.close()
