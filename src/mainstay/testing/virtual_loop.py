"""An event loop in virtual time: no I/O, no threads, no waiting, and one seed that decides every choice it has.

A wait costs nothing: when nothing is ready, the clock jumps to the next timer. Tasks that are ready at the same moment
run in an order drawn from the seed: different seeds try different interleavings, and a failing seed fails again.

Tasks can belong to a `SimulatedHost`, which can crash (its tasks never run again, not even their `finally`) and freeze
(its tasks run late, as on a machine that was suspended).
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
import sys
import threading
import warnings
from asyncio import _get_running_loop, _set_running_loop  # meant for event loops
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, TypeVarTuple

import msgspec

from ..errors import MainstayError

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

#: how often a coroutine that is closed may wait in its cleanup
_MOST_AWAITS = 100
#: a timer of a host with a clock of its own fires this much late: rounded, it must not fire before its time
_ROUNDING_S = 1e-9
#: the host whose code runs now; callbacks and tasks inherit it with their context
_host: contextvars.ContextVar[SimulatedHost | None] = contextvars.ContextVar("mainstay_virtual_host", default=None)


class Deadlock(MainstayError):
    """Every task waits for something that no timer and no other task will bring."""

    code = "deadlock"


class HostClock(msgspec.Struct, frozen=True):
    """The steady clock of a simulated machine. It says nothing about the time elsewhere, and may be fast or slow.

    >>> clock = HostClock(began_s=1000.0, rate=1.01)
    >>> clock.local_s(100.0), clock.true_s(1101.0)
    (1101.0, 100.0)
    """

    began_s: float = 0.0
    """what it showed when the loop was made"""
    rate: float = 1.0
    """its seconds in a second of the loop"""

    def local_s(self, true_s: float) -> float:
        return self.began_s + self.rate * true_s

    def true_s(self, local_s: float) -> float:
        return (local_s - self.began_s) / self.rate


class SimulatedHost:
    """A simulated machine: a name for tasks that crash and freeze together. Made by `VirtualLoop.host`."""

    def __init__(self, name: str, loop: VirtualLoop, clock: HostClock | None = None) -> None:
        self.name = name
        self.clock = clock
        """what `loop.time()` says to code on this host; None: the time of the loop"""
        self.processes: list[SimulatedHost] = []
        """what crashes, freezes and goes on with it"""
        self._loop = loop
        self._alive = True
        self._frozen = False
        self._tasks: list[asyncio.Task[Any]] = []

    def __repr__(self) -> str:
        state = "frozen" if self._frozen else "alive" if self._alive else "crashed"
        return f"<SimulatedHost {self.name} {state}>"

    @property
    def alive(self) -> bool:
        return self._alive

    @property
    def frozen(self) -> bool:
        return self._frozen

    def start(self, coroutine: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """Run a coroutine on this host. The tasks that it starts belong to the host, too. An error that it raises ends
        the run."""
        if not self._alive:
            coroutine.close()
            raise MainstayError(f"the host {self.name} has crashed; start the work on a new host")
        context = contextvars.copy_context()
        context.run(_host.set, self)
        task: asyncio.Task[R] = self._loop.create_task(coroutine, context=context)
        task.add_done_callback(_raise_error)
        return task

    def crash(self) -> None:
        """Stop everything on this host at once, as a power cut does: no code of it runs again."""
        self._alive = False
        self._frozen = False
        self._loop._drop(self)  # noqa: SLF001 - its other half
        for process in self.processes:
            if process.alive:
                process.crash()

    def freeze(self) -> None:
        """Let nothing on this host run until `thaw`. Its timers go on and fire late."""
        self._frozen = True
        for process in self.processes:
            if process.alive:
                process.freeze()

    def thaw(self) -> None:
        """Go on: everything that became ready while the host was frozen is ready now."""
        self._frozen = False
        self._loop._release(self)  # noqa: SLF001 - its other half
        for process in self.processes:
            if process.alive:
                process.thaw()

    def keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.append(task)


class HostTimer(asyncio.TimerHandle):
    """A timer, and the host that it belongs to."""

    def __init__(
        self,
        when: float,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        loop: VirtualLoop,
        context: contextvars.Context,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.host = context.get(_host)


class HostHandle(asyncio.Handle):
    """A callback that is ready, and the host that it belongs to."""

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], loop: VirtualLoop, context: contextvars.Context
    ) -> None:
        super().__init__(callback, args, loop, context)
        self.host = context.get(_host)

    @property
    def steps_a_task(self) -> bool:
        return isinstance(getattr(self._callback, "__self__", None), asyncio.Task)  # type: ignore[attr-defined] # of Handle


HostCall = HostHandle | HostTimer
"""what a virtual loop runs"""


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio loop that jumps from timer to timer. `run_virtual` is the short way to use one.

    `asyncio.sleep`, timeouts, locks, queues and task groups work. Sockets, subprocesses and signals do not exist here.
    `run_in_executor` and `asyncio.to_thread` run their function on the loop. An error that no code handles ends the
    run: in a simulation nothing is lost in a log.

    >>> async def main():
    ...     loop = asyncio.get_running_loop()
    ...     began = loop.time()
    ...     await asyncio.sleep(86400)
    ...     return loop.time() - began
    >>> run_virtual(main(), seed=1)
    86400.0
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._now_s = 0.0
        self._due: list[HostCall] = []
        self._timers: list[tuple[float, int, HostTimer]] = []
        self._timers_set = 0
        self._held: dict[SimulatedHost, list[HostCall]] = {}
        self._crashed: list[object] = []
        self._hosts: list[SimulatedHost] = []
        self._ending = False
        """the coroutines that are left are closed: what they schedule is taken and never run"""
        #: how many callbacks have run; two runs of one seed have the same number at every moment
        self.steps = 0

    def host(self, name: str, *, on: SimulatedHost | None = None, clock: HostClock | None = None) -> SimulatedHost:
        """A new simulated machine, or a process `on` one: it crashes and freezes with it, and can be killed alone.
        Without a `clock` it has that of the host that makes it."""
        # kept for as long as the loop: without references, the tasks of a crashed host would be collected, and the
        # collection would run their `finally`
        maker = on or self.running_host
        host = SimulatedHost(name, self, clock or (None if maker is None else maker.clock))
        self._hosts.append(host)
        if on is not None:
            on.processes.append(host)
        return host

    @property
    def running_host(self) -> SimulatedHost | None:
        """The host whose code runs now."""
        return _host.get()

    # what asyncio asks of a loop ------------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds since the loop was made; on a host with a clock of its own, what that clock says."""
        host = _host.get()
        return self._now_s if host is None or host.clock is None else host.clock.local_s(self._now_s)

    @property
    def true_s(self) -> float:
        """Virtual seconds since the loop was made, whatever the clock of the running host says."""
        return self._now_s

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        self._check_open()
        handle = HostHandle(callback, args, self, contextvars.copy_context() if context is None else context)
        self._add(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() != self._thread:
            raise RuntimeError("a thread calls into a virtual loop: nothing with threads can run in virtual time")
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_open()
        timer = HostTimer(when, callback, args, self, contextvars.copy_context() if context is None else context)
        self._timers_set += 1
        host = _host.get()
        due_s = when if host is None or host.clock is None else host.clock.true_s(when) + _ROUNDING_S
        heapq.heappush(self._timers, (due_s, self._timers_set, timer))
        return timer

    def create_task(self, coro: Any, *, name: object = None, context: contextvars.Context | None = None) -> Any:
        if self._ending:
            coro.close()
            return self.create_future()
        task = super().create_task(coro, name=name, context=context)
        host = (contextvars.copy_context() if context is None else context).get(_host)
        if host is not None:
            host.keep(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], R], *args: *Ts) -> asyncio.Future[R]:  # noqa: ARG002 - there is one thread
        future: asyncio.Future[R] = self.create_future()

        def call() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - it goes to the caller, who awaits the future
                future.set_exception(error)

        self.call_soon(call)
        return future

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        raise error if isinstance(error, BaseException) else MainstayError(str(context.get("message")))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # the base class logs what a handler raises. After the run, an error is one of closing what was left
        if not self.is_closed():
            self.default_exception_handler(context)

    def run_forever(self) -> None:
        self._thread = threading.get_ident()
        super().run_forever()

    def close(self) -> None:
        """Also close the coroutines of crashed hosts and of tasks that did not end. The run is over: what they do now
        reaches nothing, and is not reported."""
        super().close()
        # code that cleans up must find this loop: without a running one, `gather` starts its coroutines on a real loop
        running = _get_running_loop()
        _set_running_loop(self)
        self._ending = True
        reported, sys.unraisablehook = sys.unraisablehook, _not_reported
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for task in asyncio.all_tasks(self):
                    # or asyncio reports each as destroyed while pending; it has no public way to say that this is meant
                    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - see above
                    _end(task.get_coro())
        finally:
            sys.unraisablehook = reported
            self._ending = False
            _set_running_loop(running)
        self._due.clear()
        self._timers.clear()
        self._held.clear()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are skipped when their time comes."""

    def _write_to_self(self) -> None:
        """No other thread waits for this loop."""

    def _process_events(self, event_list: object) -> None:
        """There is no I/O."""

    # within -------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Run every callback that is ready now, then let time pass if there is none."""
        self._fire_timers()
        if not self._due:
            self._jump()
            self._fire_timers()
        batch, self._due = self._due, []
        for handle in self._in_drawn_order(batch):
            if handle.cancelled():
                continue
            host = handle.host
            if host is not None and (not host.alive or host.frozen):
                self._add(handle)  # it changed while this batch ran
                continue
            self.steps += 1
            self._step(handle)

    def _step(self, handle: HostCall) -> None:
        """Run a callback. A subclass may measure it: `handle.host` is the host that it belongs to."""
        handle._run()  # noqa: SLF001 - what a loop does with a handle

    def _in_drawn_order(self, batch: list[HostCall]) -> list[HostCall]:
        """Tasks in an order drawn from the seed; other callbacks stay in order, as asyncio promises."""
        if len(batch) < 2:
            return batch
        places = [place for place, one in enumerate(batch) if isinstance(one, HostHandle) and one.steps_a_task]
        if len(places) < 2:
            return batch
        drawn = [batch[place] for place in places]
        self._random.shuffle(drawn)
        for place, handle in zip(places, drawn, strict=True):
            batch[place] = handle
        return batch

    def _fire_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self._now_s:
            _, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled():
                self._add(timer)

    def _jump(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            raise Deadlock("every task waits, and no timer is set: nothing can happen any more")
        self._now_s = max(self._now_s, self._timers[0][0])

    def _check_open(self) -> None:
        if self.is_closed() and not self._ending:
            raise RuntimeError("the loop is closed")

    def _add(self, handle: HostCall) -> None:
        host = handle.host
        if host is None or (host.alive and not host.frozen):
            self._due.append(handle)
        elif host.alive:
            self._held.setdefault(host, []).append(handle)
        else:
            self._crashed.append(handle)

    def _release(self, host: SimulatedHost) -> None:
        self._due += self._held.pop(host, [])

    def _drop(self, host: SimulatedHost) -> None:
        """Callbacks and timers of a crashed host never run, but stay referenced: see `SimulatedHost`."""
        self._crashed += self._held.pop(host, [])
        self._crashed += [handle for handle in self._due if handle.host is host]
        self._due = [handle for handle in self._due if handle.host is not host]
        self._crashed += [timer for _, _, timer in self._timers if timer.host is host]
        self._timers = [entry for entry in self._timers if entry[2].host is not host]
        heapq.heapify(self._timers)


class LoopClock:
    """The clock of a store or a host in a virtual loop: wall time and lease time follow the loop. `skew_s` is how far
    its wall clock is off."""

    def __init__(self, loop: VirtualLoop, *, now_ms: int = 1_700_000_000_000, skew_s: float = 0.0) -> None:
        self._loop = loop
        self._began_ms = now_ms
        self.skew_s = skew_s

    def now_ms(self) -> int:
        return self._began_ms + round((self._loop.true_s + self.skew_s) * 1000)

    def lease_ms(self) -> int:
        return self._began_ms + round(self._loop.true_s * 1000)


def run_virtual(main: Coroutine[Any, Any, R], *, seed: int = 0) -> R:
    """Run a coroutine in virtual time and return its result. Raises `Deadlock` if nothing can happen any more."""
    with virtual_loop(seed) as loop:
        found: R = loop.run_until_complete(main)
        return found


@contextmanager
def virtual_loop(seed: int = 0) -> Iterator[VirtualLoop]:
    """A loop that is closed at the end of the block."""
    loop = VirtualLoop(seed)
    try:
        yield loop
    finally:
        loop.close()


def _not_reported(error: object) -> None:
    """A coroutine waits in its cleanup although the one that awaited it is gone."""


def _end(coroutine: Any) -> None:
    """Close a coroutine. At each `await` of its cleanup it ignores the request once."""
    for _ in range(_MOST_AWAITS):
        try:
            coroutine.close()
        except RuntimeError:
            continue
        except Exception:  # noqa: BLE001 - raised by a cleanup after the run, whose result is known already
            return
        return


def _raise_error(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


__all__ = [
    "Deadlock",
    "HostCall",
    "HostClock",
    "LoopClock",
    "SimulatedHost",
    "VirtualLoop",
    "run_virtual",
    "virtual_loop",
]
