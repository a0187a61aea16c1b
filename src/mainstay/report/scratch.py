"""A folder for one run, which the next run removes should this one be killed."""

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
    """A folder of one's own while this is open. Those of processes that were killed are removed first: as long as one
    lives, it holds a lock in its folder, also against those who do not see its process (containers that share `/tmp`).
    """
    _clear(prefix)
    # a straggler may still be writing when it is removed
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        # named only once it is locked: before that nobody looks
        unnamed = Path(folder, f"{_LOCK}.new")
        with unnamed.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            unnamed.rename(Path(folder, _LOCK))
            yield folder


def _clear(prefix: str) -> None:
    for lock in Path(tempfile.gettempdir()).glob(f"{prefix}*/{_LOCK}"):
        with contextlib.suppress(OSError):  # somebody else's, or held, or gone by now
            handle = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(handle)
