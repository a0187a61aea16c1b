"""Where the files of a whole run stand: in memory, if there is room.

What tests prove about files holds there as well: an answer after a kill, a lock, a rename, the calls that sync. What
the disk of a machine does when its power fails no test here can see. A test that is run by itself keeps its folder
where pytest puts it, to be looked at afterwards.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

MEMORY = Path("/dev/shm")
#: more than a run needs; most of that is what servers write ahead
LEAST_FREE_GIB = 6


def in_memory(place: Path = MEMORY) -> Callable[[], None] | None:
    """Have this process and those that it starts make temporary files in memory. What to call in the end, or None if
    there is no room or a place was chosen."""
    if "TMPDIR" in os.environ:
        return None
    _remove_left(place)
    if not _has_room(place):
        return None
    # short: the path of a socket has at most 107 characters
    folder = tempfile.mkdtemp(prefix=f"ms-{os.getpid()}-", dir=place)
    Path(folder).chmod(0o755)  # servers that refuse to run as root run as somebody else
    os.environ["TMPDIR"] = tempfile.tempdir = folder

    def leave() -> None:
        del os.environ["TMPDIR"]
        tempfile.tempdir = None
        shutil.rmtree(folder, ignore_errors=True)

    return leave


def _remove_left(place: Path) -> None:
    """What a run that was killed has left there takes memory until it is removed, or the machine starts anew."""
    for folder in place.glob("ms-*-*"):
        pid = folder.name.split("-")[1]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _has_room(place: Path) -> bool:
    try:
        found = os.statvfs(place)
        available_kib = int(Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0])
    except (OSError, IndexError, AttributeError):
        return False
    # programs are started from there, too
    usable = os.access(place, os.W_OK | os.X_OK) and not found.f_flag & (os.ST_NOEXEC | os.ST_RDONLY)
    free = min(found.f_bavail * found.f_frsize, available_kib * 1024)
    return usable and free >= LEAST_FREE_GIB * 2**30
