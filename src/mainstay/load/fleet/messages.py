"""The messages between the leader of a fleet and its slices: msgpack, over the bus.

Commands of the engine (`SetUp`, `StopRun`, ...) travel as they are. The leader repeats a command until it is answered.
A slice executes each number once, and answers a repeated one as before.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from ..engine.messages import CollectProvided, GiveUp, SetUp, StopRun, TearDown, Values, WorkflowsDone
from ..generator_process import Limits
from ..run_spec import RunOrder
from ..stats.model import Window
from .together import TOGETHER

#: bytes of an answer; a longer one goes in parts. The bus takes 1 MiB
PART_BYTES = 512 * 1024
#: parts of an answer: the sum of all windows of a go is the longest, and a step takes up to 10 KB
MOST_PARTS = 128


class PrepareSlice(msgspec.Struct, tag=True, kw_only=True):
    """Start the processes and prepare everything."""

    order: RunOrder
    limits: Limits
    processes: int
    first: int
    of: int


class StartSlice(msgspec.Struct, tag=True, kw_only=True):
    """Run these workflows. Answered at once; refused after the instant."""

    go: int
    """which one of the run, from 1"""
    workflows: list[str]
    shared: dict[str, dict[str, Any]]
    at_s: float
    """the instant, by the steady clock of the slice"""
    wall: float
    """the same by the wall clock of the leader, from which windows are numbered"""
    longest_s: float
    """from the instant"""
    drain_s: float
    begin_s: float = 0.0
    """the time of the plan at the instant: later than 0 for a slice that continues what a lost one began"""
    done: dict[str, int] = {}
    """by workflow: iterations that lost assignments of this slice began in this go"""
    doubt_s: float = 0.0
    """how far off the leader may have been about the clock of the slice"""


class AdoptGo(msgspec.Struct, tag=True):
    """The leader is a successor, and asks for what it has missed of a go. Answered with `GoAdopted`."""

    go: int


class CollectEnd(msgspec.Struct, tag=True):
    """Wait for the end of this go. Answered with `SliceEnd`."""

    go: int


class KillSlice(msgspec.Struct, tag=True):
    """Kill the processes."""


class ReleaseSlice(msgspec.Struct, tag=True):
    """End the processes, and then the service."""

    lost: str = ""
    """why the slice has to be done again by another service; empty: it is done"""


class PingSlice(msgspec.Struct, tag=True, kw_only=True):
    """Answered with `SliceBeat`. It has no number, because it changes nothing."""

    echo_s: float | None = None
    """`steady_s` of the last answer: the contact that a slice needs to go on has both directions"""
    go: int = 0
    upto: int = 0
    """all windows with lower numbers have arrived"""
    gaps: list[tuple[int, int]] = []
    """windows that have not arrived, and should have: from this number up to that one"""
    together: int = TOGETHER
    """how many buckets to put into one message, for the next seconds"""


SliceOrder = (
    PrepareSlice | SetUp | StartSlice | AdoptGo | StopRun | GiveUp | KillSlice | CollectEnd | CollectProvided | TearDown
    | ReleaseSlice | PingSlice
)  # fmt: skip


class SliceCommand(msgspec.Struct, kw_only=True):
    """One order to a slice."""

    job: str
    slice: int
    token: int
    epoch: int
    """of the leader: an older one is refused"""
    number: int
    """of the command, counted by each leader"""
    key: str = ""
    """of an order that is executed once, whichever leaders give it: `set_up/1`. Empty: `epoch` and `number` are"""
    part: int = 0
    """of the answer"""
    calls: int = 0
    """how many setups, states or teardowns it runs"""
    order: SliceOrder


class CommandAccepted(msgspec.Struct, tag=True):
    """Done, or begun."""


class CommandPending(msgspec.Struct, tag=True):
    """Not done yet: ask again."""


class CommandRefused(msgspec.Struct, tag=True, kw_only=True):
    """Why it was not done. `field` is set for a test that cannot run."""

    rule: str
    field: str = ""
    epoch: int = 0
    """of the leader that has taken over from the one that asks; 0: none has"""


class SliceWindow(msgspec.Struct, kw_only=True):
    """A window of a slice, merged over its processes."""

    token: int
    go: int
    number: int
    """from 0, without gaps"""
    count: int = 1
    """it is the sum of as many windows, from this number on"""
    window: Window


class SliceBeat(msgspec.Struct, tag=True, kw_only=True):
    """The state of a slice."""

    steady_s: float
    """by its steady clock"""
    prepared: bool
    over: bool
    """none of its processes is left"""
    go: int
    windows: int
    """how many it has sent of this go"""
    repaired: list[SliceWindow] = []
    """for each gap the sum of its windows, as far as the answer has room for them"""


class SliceEnd(msgspec.Struct, tag=True, kw_only=True):
    """The end of a go in a slice: the record."""

    go: int
    token: int = 0
    """of the assignment"""
    reports: list[WorkflowsDone]
    loss: str
    """of a process; empty: there was none"""
    isolated: bool
    """it stopped itself, without contact to the leader"""
    windows: int
    total: Window | None
    """the sum of all its windows, for a leader that has not received them"""
    stopped: bool = False
    """a leader has stopped it, before its plan was over"""
    began: bool = True
    """whether there was an order to go; if not, it is refused from now on"""


class GoAdopted(msgspec.Struct, tag=True, kw_only=True):
    """What a successor of the leader needs to go on with a go."""

    began: bool
    """whether the slice has accepted the order to go; if not, it refuses it from now on: its leader has a lower
    epoch"""
    at_s: float = 0.0
    """the instant, by the steady clock of the slice"""
    wall: float = 0.0
    """the same as its leader had it"""
    begin_s: float = 0.0
    windows: int = 0
    """those with lower numbers are in `total`; the others are sent"""
    total: Window | None = None
    doubt_s: float = 0.0
    """how far off the leader may have been that ordered the go"""


class AnswerPart(msgspec.Struct, tag=True, kw_only=True):
    """A part of a long answer. The next one is asked for with the same command."""

    body: bytes
    of: int


SliceAnswer = CommandAccepted | CommandPending | CommandRefused | SliceBeat | SliceEnd | GoAdopted | Values | AnswerPart


class SliceLines(msgspec.Struct, kw_only=True):
    """Lines that the steps of a slice printed, with the number of the process."""

    lines: list[tuple[int, str]]


def command_subject(node: str, job: str, number: int) -> str:
    return f"control.slice.{node}.{job}.{number}"


def window_subject(node: str, job: str, number: int | str) -> str:
    return f"data.window.{node}.{job}.{number}"


def line_subject(node: str, job: str, number: int | str) -> str:
    return f"telemetry.line.{node}.{job}.{number}"


def live_subject(job: str) -> str:
    """For windows that the leader has merged over all slices."""
    return f"data.live.{job}"


#: errors of a message that cannot be read: of another version, or of a node that does harm
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

# floats may be infinite, and values of a test may be of any type
encode = msgspec.msgpack.Encoder(enc_hook=str).encode
decode_command = msgspec.msgpack.Decoder(SliceCommand).decode
decode_answer = msgspec.msgpack.Decoder(SliceAnswer).decode
decode_end = msgspec.msgpack.Decoder(SliceEnd).decode
decode_windows = msgspec.msgpack.Decoder(list[SliceWindow]).decode
decode_lines = msgspec.msgpack.Decoder(SliceLines).decode


def encode_windows(windows: deque[SliceWindow]) -> bytes:
    """A message with as many of these windows as it has room for, at least one. They are taken from the queue."""
    bodies: list[msgspec.Raw] = []
    size = 0
    while windows:
        body = msgspec.Raw(encode(windows[0]))
        size += len(body)
        if bodies and size > PART_BYTES:
            break
        bodies.append(body)
        windows.popleft()
    return encode(bodies)
