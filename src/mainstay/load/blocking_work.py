"""Work that may block on a disk or a pipe, off the event loop."""

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
    """Runs calls one after the other in a daemon thread.

    The program would wait for the thread of an executor at its end, and a pipe without a reader would keep it forever.

    >>> BackgroundThread().submit(sum, [1, 2]).result()
    3
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._lock = threading.Lock()
        self._busy = False

    def submit(self, work: Callable[_P, _T], *args: _P.args, **named: _P.kwargs) -> Future[_T]:
        """Call it after everything that was submitted before."""
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
                except BaseException as error:  # noqa: BLE001 - raised where the result is read
                    future.set_exception(error)


class InlineThread:
    """Makes calls at once, on the thread of the caller: for a simulation, where nothing may have a thread.

    >>> InlineThread().submit(sum, [1, 2]).result()
    3
    """

    def submit(self, work: Callable[_P, _T], *args: _P.args, **named: _P.kwargs) -> Future[_T]:
        future: Future[_T] = Future()
        try:
            future.set_result(work(*args, **named))
        except Exception as error:  # noqa: BLE001 - raised where the result is read
            future.set_exception(error)
        return future
