"""An event loop in its own thread, also in a program whose threads gevent has replaced by greenlets.

Greenlets share one system thread, and asyncio has one running loop per system thread: a loop in a greenlet would seem
to run in all of them. So the loop gets a real thread. It is created in that thread, because gevent binds the selector
of a loop to the thread that created it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

_TIMER_S = 60.0


def has_green_threads() -> bool:
    """Whether `threading` starts greenlets here (`gevent.monkey.patch_all`)."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


@contextlib.contextmanager
def waiting_for_a_thread() -> Iterator[None]:
    """For a block that waits for another thread: without a timer, gevent treats a wait that no greenlet can end as a
    deadlock."""
    if not has_green_threads():
        yield
        return
    timer = sys.modules["gevent"].get_hub().loop.timer(_TIMER_S, _TIMER_S)
    timer.start(lambda: None)
    try:
        yield
    finally:
        timer.stop()
        timer.close()


class LoopThread:
    """Runs `serve` in a daemon thread; `serve` creates its loop, passes it to its argument, and runs it to the end."""

    def __init__(self, serve: Callable[[Callable[[asyncio.AbstractEventLoop], None]], None], *, name: str) -> None:
        self._serve = serve
        self._name = name
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._ended = threading.Event()
        self._ident: int | None = None

    def start(self) -> asyncio.AbstractEventLoop:
        """Start the thread; returns its loop."""
        if has_green_threads():
            sys.modules["gevent.monkey"].get_original("_thread", "start_new_thread")(self._run, ())
        else:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        with waiting_for_a_thread():
            return self._ready.result()

    def join(self) -> None:
        """Wait for its end; in the thread itself, return at once."""
        if self._ident != threading.get_ident():
            with waiting_for_a_thread():
                self._ended.wait()

    def _run(self) -> None:
        self._ident = threading.get_ident()
        try:
            self._serve(self._ready.set_result)
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)
        finally:
            self._ended.set()
