"""Async code for callers without a loop: one event loop in its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from ..errors import MainstayError
from ..loop_thread import LoopThread, waiting_for_a_thread

T = TypeVar("T")


class Portal:
    """Runs coroutines for any number of threads. Its thread starts with the first call, and is a daemon."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: LoopThread | None = None

    @property
    def is_open(self) -> bool:
        return self._loop is not None

    def run(self, make: Callable[[], Coroutine[Any, Any, T]], *, what: str) -> T:
        """The result of the coroutine; `what` is the called method, for the message of an error."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            plain = what.removesuffix("_sync")
            raise MainstayError(f"{what} would block the event loop that runs here; write `await {plain}(...)` instead")
        with self._lock:
            future = asyncio.run_coroutine_threadsafe(make(), self._started())
        try:
            with waiting_for_a_thread():
                return future.result()
        except BaseException:
            future.cancel()  # a Ctrl-C in this thread must also end the coroutine
            raise

    def close(self) -> None:
        """Stop the thread; pending calls get a CancelledError. The next call starts a new one."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            if loop is None or thread is None:
                return
            loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def forget(self) -> None:
        """After a fork: the thread exists only in the parent."""
        self._lock = threading.Lock()
        self._loop = self._thread = None

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._thread = LoopThread(_serve, name="mainstay-sync")
            self._loop = self._thread.start()
        return self._loop


class _Executor(ThreadPoolExecutor):
    """Runs work in the calling thread once the interpreter shuts down, so that a store can still be closed: other
    executors refuse new work then."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError:
            done: Future[T] = Future()
            try:
                done.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - passed on to the waiter
                done.set_exception(error)
            return done


def _serve(on_ready: Callable[[asyncio.AbstractEventLoop], None]) -> None:
    # a Runner cancels remaining tasks and shuts down generators and executor when it is closed
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.set_default_executor(_Executor(thread_name_prefix="mainstay-sync"))
        loop.call_soon(on_ready, loop)
        loop.run_forever()
