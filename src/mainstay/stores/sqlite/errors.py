"""Errors of SQLite and of the system as errors of Mainstay, with advice."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import apsw

from ...errors import MainstayError, RowDamaged, StoreDamaged, StoreError, StoreFull, StoreLocked, StoreReadOnly


@contextlib.contextmanager
def in_our_words(path: Path) -> Iterator[None]:
    """Raise the errors of SQLite and of the system as ours."""
    try:
        yield
    except MainstayError:
        raise
    except (apsw.BusyError, apsw.LockedError) as error:
        raise StoreLocked(
            f"{path} is locked by another program; nothing was written. "
            "Close the program that keeps a transaction open on it (a database browser?), then try again"
        ) from error
    except apsw.FullError as error:
        raise StoreFull(
            f"no space left for {path}; nothing of this call was written. Free space on its disk, then try again"
        ) from error
    except (apsw.ReadOnlyError, apsw.PermissionsError) as error:
        raise StoreReadOnly(f"{path} or its folder cannot be written ({error}); check owner and permissions") from error
    except apsw.CantOpenError as error:
        raise _cannot_open(path, error) from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise StoreDamaged(damage_text(path, str(error))) from error
    except UnicodeDecodeError as error:
        raise RowDamaged(
            f"a row of {path} has invalid text ({error}); find it with: mainstay check --store sqlite:///{path}"
        ) from error
    except apsw.IOError as error:
        raise StoreError(
            f"the disk failed under {path} ({error}); nothing of this call was written. Check the disk and its space"
        ) from error
    except apsw.Error as error:
        raise StoreError(f"{path}: SQLite refused the call ({error}); nothing of it was written") from error
    except OSError as error:
        raise _refused_by_system(path, error) from error


def translated(path: Path, error: BaseException) -> BaseException:
    try:
        with in_our_words(path):
            raise error
    except BaseException as ours:  # noqa: BLE001 - it is passed to the caller
        return ours


def _refused_by_system(path: Path, error: OSError) -> StoreError:
    """A file beside the database (a lock, a socket) could not be made or opened."""
    what = f"{error.filename or path}: {error.strerror}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"no space left beside {path} ({what}). Free space on its disk, then try again")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreReadOnly(f"{path} or its folder cannot be written ({what}); check owner and permissions")
    return StoreError(f"{path} cannot be used ({what})")


def _cannot_open(path: Path, error: Exception) -> StoreError:
    if not path.parent.is_dir():
        return StoreError(f"the folder of {path} does not exist; create it first")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        return StoreReadOnly(f"{path} or its folder cannot be written; check owner and permissions")
    return StoreError(f"{path} cannot be opened ({error})")


def damage_text(path: Path, what: str) -> str:
    return (
        f"{path} is damaged as a file, not only in its rows ({what}). It was not changed. Copy it (with its -wal "
        "file) before anything else, then restore a backup, or recover the readable part with: "
        f"sqlite3 {path} .recover | sqlite3 recovered.db"
    )
