"""The messages between a generator process and the collector: msgpack, prefixed with the length."""

from __future__ import annotations

import asyncio
import math
import struct
from typing import Any

import msgspec

from ..plan import LoadOptions, RunPlan
from ..sources import Source
from ..stats.accounts import Account
from ..stats.model import Window

_LENGTH = struct.Struct("<I")
_LONGEST = 1 << 28
#: time limit of each setup and each teardown, in seconds
ONCE_S = 600.0
#: the same for a teardown after the run was given up
LAST_ONCE_S = 5.0


class StartInstant(msgspec.Struct, frozen=True, kw_only=True):
    """When a load begins: the same instant in all processes of a run."""

    after_s: float
    """from now; it is computed where it is used, and never sent"""
    wall: float
    """the instant in seconds since 1970, by the clock of the leader. Windows are numbered from it"""
    begin_s: float = 0.0
    """the time of the plan at which the load begins: a replacement continues where the slice before it stopped"""
    done: dict[str, int] = {}
    """by workflow with a fixed number of iterations: how many this slice began before. Its processes do the rest"""
    together: int = 1
    """how many windows a process sends at once"""


class Begin(msgspec.Struct, tag=True, kw_only=True):
    """Load the test and prepare everything. Answered with `Ready` or `BeginRefused`."""

    name: str
    source: Source
    options: LoadOptions
    plan: RunPlan
    """made by the collector: a generator only reads the methods of the classes, which cannot be sent"""
    process: int
    processes: int
    """of the whole run, which the load is dealt over; `process` is one of them"""
    preflight: bool = True
    """whether this process checks that the targets can be reached"""


class SetUp(msgspec.Struct, tag=True):
    """Run the setups of these workflows. Answered with `Values`."""

    workflows: list[str]
    shared: dict[str, dict[str, Any]]


class Go(msgspec.Struct, tag=True, kw_only=True):
    """Run these workflows. Answered with windows, and `WorkflowsDone` at the end."""

    workflows: list[str]
    shared: dict[str, dict[str, Any]]
    """by workflow: the context of its users"""
    at: float
    """the start, by `time.perf_counter`: the same for all processes of a machine, and never adjusted"""
    wall: float
    """the same by the wall clock, the base of window numbers"""
    begin_s: float = 0.0
    """the time of the plan at the start: what is due before it was another process's"""
    done: dict[str, int] = {}
    """by workflow: iterations of this process's share that another process began before"""
    until_s: float = math.inf
    """until when this process may send, by `boot_time`; `KeepAlive` moves it"""
    together: int = 1
    """windows that are sent at once; the last one has a bucket that is a multiple of it, in all processes"""


class KeepAlive(msgspec.Struct, tag=True):
    """The collector would stop the load if it had to: it may go on until then, by `boot_time`."""

    until_s: float


class StopRun(msgspec.Struct, tag=True):
    """End the running workflows: after their current iterations, or with `hurry` after their current calls."""

    hurry: bool


class GiveUp(msgspec.Struct, tag=True):
    """Abort the running workflows; teardowns get little time."""


class CollectProvided(msgspec.Struct, tag=True):
    """Collect the values that these finished workflows provide. Answered with `Values`."""

    workflows: list[str]


class TearDown(msgspec.Struct, tag=True):
    """Run the teardowns of these workflows. Answered with `Values`."""

    workflows: list[str]


class Quit(msgspec.Struct, tag=True):
    """Exit."""


class Ready(msgspec.Struct, tag=True):
    """Everything is prepared."""


class BeginRefused(msgspec.Struct, tag=True, kw_only=True):
    """Why the test cannot run."""

    field: str
    rule: str
    trace: str = ""


class Values(msgspec.Struct, tag=True, kw_only=True):
    """Results of setups or states, by workflow and method; and errors, by workflow."""

    values: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}


class WindowReport(msgspec.Struct, tag=True):
    """A window of this process."""

    window: Window
    draining: list[str] = []
    """workflows that have begun to end by the end of the window"""


class WorkflowReport(msgspec.Struct, tag=True, kw_only=True):
    """The result of a workflow in this process."""

    iterations: int
    clean: int
    """without an error"""
    account: Account
    """how all iterations ended"""
    unmade: int = 0
    """iterations without a user, because users could not begin"""
    refusal: str = ""
    """the error of the first user that could not begin"""
    nothing_left: bool = False
    """it continued a plan of which nothing was left for this process"""


class WorkflowsDone(msgspec.Struct, tag=True, kw_only=True):
    """The workflows are done, and all their windows are sent."""

    workflows: dict[str, WorkflowReport]
    took: float
    """seconds from the start until the last user had left"""
    loaded: float
    """seconds in which iterations began: without the drain of open models"""
    late_s: float = 0.0
    """between the agreed instant and the start of this process"""


ToGenerator = Begin | SetUp | Go | KeepAlive | StopRun | GiveUp | CollectProvided | TearDown | Quit
FromGenerator = Ready | BeginRefused | Values | WindowReport | WorkflowsDone

_encode = msgspec.msgpack.Encoder(enc_hook=str).encode


def framed(message: ToGenerator | FromGenerator) -> bytes:
    """A message as bytes."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


class MessageReader:
    """Reads the messages of the other side."""

    def __init__(self, reader: asyncio.StreamReader, types: Any) -> None:
        self._reader = reader
        self._decode = msgspec.msgpack.Decoder(types).decode

    async def read(self) -> Any:
        """The next message; None when the other side has closed the connection."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if length > _LONGEST:
                return None
            return self._decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            return None
