"""Work that may wait for a disk or a reader for ever, beside the event loop."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class BackgroundThread:
    """Does one thing after another in a thread, which nobody waits for when the program ends.

    An executor's thread would be waited for: a pipe that nobody reads would keep a program whose run is long over.

    >>> BackgroundThread().submit(sum, [1, 2]).result()
    3
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._lock = threading.Lock()
        self._busy = False

    def submit(self, work: Callable[_P, _T], *args: _P.args, **named: _P.kwargs) -> Future[_T]:
        """Have it done after all that was submitted before."""
        future: Future[_T] = Future()
        with self._lock:
            self._waiting.append((future, functools.partial(work, *args, **named)))
            if self._busy:
                return future
            self._busy = True
        threading.Thread(target=self._work, name="mainstay-aside", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._busy = False
                    return
                future, work = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:  # noqa: BLE001 - whoever submitted it is told
                    future.set_exception(error)
