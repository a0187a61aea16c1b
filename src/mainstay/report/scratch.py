"""A temporary folder for one run. If the run is killed, the next run removes the folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_LOCK = "lock"


@contextlib.contextmanager
def scratch_folder(prefix: str) -> Iterator[str]:
    """A temporary folder while the context is open. Folders of killed processes are removed first: a live process holds
    a lock in its folder, which works across containers that share `/tmp`.
    """
    _clear(prefix)
    # a child process may still write while the folder is removed
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        # it gets its name after it is locked: other processes search by that name
        unnamed = Path(folder, f"{_LOCK}.new")
        with unnamed.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            unnamed.rename(Path(folder, _LOCK))
            yield folder


def _clear(prefix: str) -> None:
    for lock in Path(tempfile.gettempdir()).glob(f"{prefix}*/{_LOCK}"):
        with contextlib.suppress(OSError):  # of another user, or locked, or removed by now
            handle = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(handle)
