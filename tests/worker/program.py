"""A program without an app: what the worker's machinery is pointed at in tests.

`Stage` implements the protocol with functions registered by name. Arguments and results are msgpack; functions take
what they are given as keywords.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mainstay.control import Control, Duty, JobRequest, decoded
from mainstay.control.payload import encoded
from mainstay.errors import BadArguments, BadResult, InvalidInput, UnknownTask
from mainstay.model import BLANK, Job, Settings
from mainstay.stores import open_store
from mainstay.worker import Context, Hook, Mode, context

LIMIT = 1 << 24


class Act:
    """A function as work."""

    def __init__(self, function: Callable[..., Any], mode: Mode) -> None:
        self.function = function
        self.mode = mode
        self.is_async = inspect.iscoroutinefunction(function)
        self.decide = None

    def unpack(self, payload: bytes) -> Any:
        arguments = decoded(payload)
        try:
            inspect.signature(self.function).bind(**arguments)
        except TypeError as error:
            raise BadArguments("arguments", str(error)) from None
        return arguments

    def call(self, arguments: Any) -> Any:
        return self.function(**arguments)

    def pack(self, result: Any) -> msgspec.Raw | None:
        try:
            return None if result is None else msgspec.Raw(encoded(result, field="result", limit=LIMIT))
        except InvalidInput as error:
            raise BadResult(error.field, error.rule) from None


class Stage:
    """A program: `stage.act(function)` makes a function its work, under the function's name."""

    def __init__(self, store_url: str = "memory:") -> None:
        self.store_url = store_url
        self.settings = Settings(payload_limit=LIMIT)
        self.queues: Sequence[str] = ("default",)
        self.acts: dict[str, Act] = {}
        self.entered = 0
        """how often its lifespan was entered in this process"""
        self._control: Control | None = None

    def act(self, function: Callable[..., Any], mode: Mode = "process") -> Callable[..., Any]:
        self.acts[function.__name__] = Act(function, mode)
        return function

    async def open(self) -> Control:
        if self._control is None:
            self._control = Control(await open_store(self.store_url), settings=self.settings)
        return self._control

    async def close(self) -> None:
        if self._control is not None:
            await self._control.store.close()
            self._control = None

    def work(self, kind: str, name: str) -> Act:
        found = self.acts.get(name)
        if found is None:
            raise UnknownTask(name, self.acts)
        return found

    def pack(self, value: Any) -> bytes:
        return encoded(value, field="checkpoint", limit=LIMIT)

    def unpack(self, data: bytes) -> Any:
        return decoded(data)

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        self.entered += 1
        yield
        if path := os.environ.get("STAGE_LEFT"):
            Path(path).write_text(str(os.getpid()))

    def around(self, context: Context) -> Sequence[Hook]:
        return ()

    async def prepare(self, control: Control) -> None: ...

    def duties(self, control: Control) -> Sequence[Duty]:
        return ()


def job(name: str, /, **arguments: Any) -> Job:
    """A claimed job for `Stage`, that no store has seen."""
    payload = encoded(arguments, field="payload", limit=LIMIT)
    return msgspec.structs.replace(BLANK, id=f"job-{name}", name=name, payload=payload, status="running", token=1)


stage = Stage()
broken_lifespan = Stage()


@contextlib.asynccontextmanager
async def _never() -> AsyncIterator[None]:
    raise RuntimeError("no database in sight")
    yield


broken_lifespan.lifespan = _never  # type: ignore[method-assign]


# what the jobs of the tests do ------------------------------------------------------------------------


@stage.act
def add(a: int, b: int) -> int:
    return a + b


@stage.act
async def add_later(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@stage.act
def raises(error: str = "the light is out") -> None:
    raise ValueError(error)


@stage.act
def ends_iteration() -> None:
    next(iter(()))


@stage.act
def exits() -> None:
    sys.exit(4)


@stage.act
async def exits_in_a_task_of_its_own() -> None:
    async def helper() -> None:
        sys.exit(4)

    await asyncio.gather(helper())


@stage.act
def tries_again() -> None:
    context().retry("90s", "the line is busy")


@stage.act
async def snoozes() -> None:
    context().snooze("5m", "too early")


@stage.act
def skips(reason: Any = "nothing to do") -> None:
    context().skip(reason)


@stage.act
def submits(payload: Any, options: dict[str, Any]) -> str:
    context().submit(JobRequest("next", payload, options), JobRequest("last"))
    return "submitted"


@stage.act
async def reports() -> list[Any]:
    """Says and asks everything there is, from the loop."""
    here = context()
    here.progress(1, 3, "one")
    before = here.checkpoint
    await here.save({"at": 1})
    granted = await here.extend()
    inputs = await here.inputs()
    here.progress(3, 3)
    return [before, granted.granted_s, granted.why, [one.id for one in inputs], here.attempt]


@stage.act
def reports_from_a_thread() -> list[Any]:
    """The same in a plain function."""
    here = context()
    here.progress(1, 3, "one")
    before = here.checkpoint
    here.save_sync({"at": 1})
    granted = here.extend_sync()
    inputs = here.inputs_sync()
    here.progress(3, 3)
    return [before, granted.granted_s, granted.why, [one.id for one in inputs], here.attempt]


@stage.act
def saves_and_survives() -> str:
    try:
        context().save_sync(b"x")
    except Exception as error:  # noqa: BLE001 - told to the test, whatever it is
        return f"{type(error).__name__}: {error}"
    return "saved"


@stage.act
def counts_fast(to: int) -> None:
    for n in range(to + 1):
        context().progress(n, to)


@stage.act
def says_nonsense() -> None:
    context().progress(float("nan"))


@stage.act
def logs() -> None:
    context().log.info("lit", extra={"lamp": 7})


@stage.act
def segfaults() -> None:
    ctypes.string_at(0)


@stage.act
def leaves(code: int) -> None:
    os._exit(code)


@stage.act
def kills_itself(number: int) -> None:
    os.kill(os.getpid(), number)


@stage.act
async def waits_on_the_loop() -> None:
    context().progress(1)
    await asyncio.Event().wait()


@stage.act
async def waits_and_ignores() -> None:
    """Takes no for no answer."""
    context().progress(1)
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@stage.act
def waits_in_a_thread() -> None:
    here = context()
    here.progress(1)
    while True:
        here.check()
        threading.Event().wait(0.001)


@stage.act
def hears_nothing() -> None:
    context().progress(1)
    threading.Event().wait()


@stage.act
def holds_the_interpreter() -> None:
    """Native code that never lets another thread run."""
    context().save_sync(None)
    ctypes.pythonapi.sleep(600)


@stage.act
def has_a_child() -> None:
    helper = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    context().progress(helper.pid)
    signal.pause() if threading.current_thread() is threading.main_thread() else threading.Event().wait()


@stage.act
def forgets_a_child_and_leaves() -> None:
    helper = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    context().progress(helper.pid)
    context().save_sync(None)
    os._exit(3)


@stage.act
def forks_away_and_leaves() -> None:
    """Leaves a process behind that has left the group, with all that was open."""
    reading, writing = os.pipe()
    stray = os.fork()
    if stray == 0:
        os.setsid()
        os.write(writing, b"!")
        signal.pause()
    os.read(reading, 1)
    context().progress(stray)
    context().save_sync(None)
    os._exit(3)


@stage.act
def closes_everything() -> None:
    os.closerange(3, 1024)
    threading.Event().wait()


@stage.act
def doubles(data: bytes) -> bytes:
    return data + data


@stage.act
def works_a_while(steps: int) -> int:
    for step in range(steps):
        context().save_sync(step)
    return steps


@stage.act
def who() -> list[int]:
    """The process, and how often its lifespan was entered."""
    return [os.getpid(), stage.entered]


@stage.act
def ignored_signals() -> list[bool]:
    """Whether a program started by a job can be interrupted and terminated."""
    script = "import signal; print([signal.getsignal(n) != signal.SIG_IGN for n in (2, 15)])"
    out = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [word == "True" for word in out.strip("[]\n").split(", ")]
