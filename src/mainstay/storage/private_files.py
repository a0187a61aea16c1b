"""Files and folders with people's data are created for their owner alone, whatever the umask says.

An existing store keeps its permissions: a group may share it deliberately. A store that other users of the machine can
read or lock is reported, with the command that ends it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import stat
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger("mainstay.storage")

_OTHERS = stat.S_IRWXO
#: paths that this process has reported: once is enough
_reported: set[str] = set()


def make_private_file(path: Path) -> bool:
    """Create an empty file that only its owner can read; False if it exists. An existing file is not opened: for an
    SQLite database that would drop its locks."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    return True


def make_private_folder(folder: Path, *, like: Path | None = None) -> bool:
    """Create a folder that only its owner can enter; False if it exists. With `like`, the group of that file gets the
    same rights on the folder as on the file."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return False
    with contextlib.suppress(OSError):
        model = None if like is None else like.stat()
        if model is not None and model.st_mode & stat.S_IRGRP:
            os.chown(folder, -1, model.st_gid)
            folder.chmod(0o770 if model.st_mode & stat.S_IWGRP else 0o750)
    return True


def open_private(path: str, flags: int) -> int:
    """An `opener` for `open` that creates files for their owner alone."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def report_exposed(what: str, paths: Sequence[Path], *, beside: bool = False) -> bool:
    """Warn, once, about paths that other users of this machine can read, write or lock; True if there are any. A path
    in a folder that they cannot enter is out of their reach. `beside`: files whose names begin with that of the first
    path belong to it."""
    exposed = [path for path in paths if _is_exposed(path)]
    fresh = [path for path in exposed if str(path) not in _reported]
    if fresh:
        _reported.update(map(str, fresh))
        names = [f"{shlex.quote(str(paths[0]))}*"] if beside else [shlex.quote(str(path)) for path in exposed]
        command = f"chmod -R o-rwx {' '.join(names)}"
        log.warning("others on this machine can reach %s, with all that is in it; run: %s", what, command)
    return bool(exposed)


def _is_exposed(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & _OTHERS and path.parent.resolve().stat().st_mode & stat.S_IXOTH)
    except OSError:
        return False


__all__ = ["make_private_file", "make_private_folder", "open_private", "report_exposed"]
