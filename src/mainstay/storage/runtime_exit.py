"""The exit of a program that has used a bucket.

The bucket client (obstore) runs its requests on threads of its own. After a thread has returned a response, it still
releases some Python objects and needs the interpreter for that. If the interpreter is being finalized by then, as in a
program that ends right after its last request, the thread is ended halfway and kills the process with SIGABRT: one
short program in four died this way. Therefore the exit waits until all of these threads are asleep. That takes about
ten milliseconds, and never more than a second.
"""

from __future__ import annotations

import atexit
import time
from functools import cache
from pathlib import Path

#: how the names of its threads begin
_THREADS = "tokio-"
_TASKS = Path("/proc/self/task")
_MOST_S = 1.0
#: where the threads cannot be watched
_BLIND_S = 0.2
_STEP_S = 0.002
#: consecutive checks that find all of them asleep: a thread that waits for the interpreter gets it between two checks
_CALM_LOOKS = 5


@cache
def settle_at_exit() -> None:
    """Make the exit of this process wait for the client's threads. Once is enough."""
    atexit.register(settle)


def settle() -> None:
    """Wait until the client's threads are asleep."""
    until_s = time.monotonic() + _MOST_S
    calm = 0
    while calm < _CALM_LOOKS and time.monotonic() < until_s:
        time.sleep(_STEP_S)  # leaves the interpreter to the other threads
        asleep = _all_asleep()
        if asleep is None:
            time.sleep(_BLIND_S)
            return
        calm = calm + 1 if asleep else 0


def _all_asleep() -> bool | None:
    """Whether all threads of the client sleep; None where the system does not show it."""
    if not _TASKS.is_dir():
        return None
    try:
        return not any(_is_awake((task / "stat").read_text()) for task in _TASKS.iterdir())
    except OSError:  # a thread ended during the check
        return False


def _is_awake(stat: str) -> bool:
    """
    >>> _is_awake("71 (tokio-rt-worker) R 1 70"), _is_awake("71 (tokio-rt-worker) S 1 70"), _is_awake("70 (python) R 1")
    (True, False, False)
    """
    name, _, rest = stat.partition("(")[2].rpartition(")")
    return name.startswith(_THREADS) and rest.split()[0] != "S"
