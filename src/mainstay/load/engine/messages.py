"""What a generator process and its collector say to each other: msgpack, each message after its length."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import msgspec

from ..plan import LoadOptions, RunPlan
from ..sources import Source
from ..stats.accounts import Account
from ..stats.model import Window

_LENGTH = struct.Struct("<I")
_LONGEST = 1 << 28
#: what is done once may take its time: seconds for each setup and each teardown
ONCE_S = 600.0
#: the same for a teardown of a run that was given up
LAST_ONCE_S = 5.0


class Begin(msgspec.Struct, tag=True, kw_only=True):
    """Load the test and prepare everything. Answered with `Ready` or `BeginRefused`."""

    name: str
    source: Source
    options: LoadOptions
    plan: RunPlan
    """made by the collector: a generator only reads the methods of the classes, which cannot be sent"""
    process: int
    processes: int


class SetUp(msgspec.Struct, tag=True):
    """Run what is done once before these workflows. Answered with `Values`."""

    workflows: list[str]
    shared: dict[str, dict[str, Any]]


class Go(msgspec.Struct, tag=True, kw_only=True):
    """Run these workflows. Windows come meanwhile, and `WorkflowsDone` in the end."""

    workflows: list[str]
    shared: dict[str, dict[str, Any]]
    """by workflow: what their users find in their context"""
    at: float
    """when, by `time.perf_counter`: on one machine it is the same for all processes, and nobody sets it"""
    wall: float
    """what the wall clock says then, which the numbers of windows follow from"""


class StopRun(msgspec.Struct, tag=True):
    """End what runs: after the iterations under way, or in a hurry after the calls under way."""

    hurry: bool


class GiveUp(msgspec.Struct, tag=True):
    """Wait for nothing any longer: what is under way is cancelled, and teardowns have little time."""


class CollectProvided(msgspec.Struct, tag=True):
    """What do these workflows, which are done, provide? Answered with `Values`."""

    workflows: list[str]


class TearDown(msgspec.Struct, tag=True):
    """Run what is done once after these workflows. Answered with `Values`."""

    workflows: list[str]


class Quit(msgspec.Struct, tag=True):
    """Leave."""


class Ready(msgspec.Struct, tag=True):
    """Everything is prepared."""


class BeginRefused(msgspec.Struct, tag=True, kw_only=True):
    """It cannot be run, and why."""

    field: str
    rule: str
    trace: str = ""


class Values(msgspec.Struct, tag=True, kw_only=True):
    """What was set up or is provided, by workflow and method; and what went wrong, by workflow."""

    values: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}


class WindowReport(msgspec.Struct, tag=True):
    """A window of this process."""

    window: Window
    draining: list[str] = []
    """workflows whose end has begun here by the end of it"""


class WorkflowReport(msgspec.Struct, tag=True, kw_only=True):
    """How a workflow went, in this process."""

    iterations: int
    clean: int
    """without an error"""
    account: Account
    """what became of all iterations"""
    unmade: int = 0
    """iterations that nobody was left for, because users could not begin"""
    refusal: str = ""
    """why the first user that could not begin could not"""


class WorkflowsDone(msgspec.Struct, tag=True, kw_only=True):
    """The workflows that were sent off are done, and every window of them was sent."""

    workflows: dict[str, WorkflowReport]
    took: float
    """seconds from the start until the last user had left"""
    loaded: float
    """seconds in which iterations were begun: without the drain of open models"""


ToGenerator = Begin | SetUp | Go | StopRun | GiveUp | CollectProvided | TearDown | Quit
FromGenerator = Ready | BeginRefused | Values | WindowReport | WorkflowsDone

_encode = msgspec.msgpack.Encoder(enc_hook=str).encode


def framed(message: ToGenerator | FromGenerator) -> bytes:
    """A message as it travels."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


class MessageReader:
    """Reads messages of one side."""

    def __init__(self, reader: asyncio.StreamReader, types: Any) -> None:
        self._reader = reader
        self._decode = msgspec.msgpack.Decoder(types).decode

    async def read(self) -> Any:
        """The next message; None when the other side has hung up."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if length > _LONGEST:
                return None
            return self._decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            return None
