"""The messages between an engine and its children: msgpack, each with its length in front, over a socket pair.

Either side only adds to a buffer that its loop empties: neither waits for the other, whatever the size of arguments and
results.

    engine                         child
                                   ChildReady, or ChildUnfit and it ends
    RunJob        ->
                  <-               ChildStarted
                  <-               ChildProgress, ChildRequest (save, extend, inputs), any number of them
    ChildAnswer   ->
    StopJob       ->
                  <-               Ended
    (closes)                       leaves its lifespan and ends
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Literal, cast

import msgspec

from .. import errors
from ..control import JobRequest, OptionReader, Plan, encoded, storable_text
from ..model import ErrorInfo, Job, Progress, Settings
from .endings import Crashed, Done, Ending, Failed, GivenBack, Gone, Halted, Misfit, NotNeeded, Overrun, PutOff
from .job_context import Stopped
from .worker_options import WorkerOptions


class ChildConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a child runs; its one command-line argument."""

    parent: int
    """the engine's process id"""
    pipe_fd: int
    options: WorkerOptions


# from the engine ------------------------------------------------------------------------------------


class RunJob(msgspec.Struct, frozen=True, tag=True):
    """Run this job."""

    job: Job


class StopJob(msgspec.Struct, frozen=True, tag=True):
    """Stop the running job."""

    why: str


class ChildRefusal(msgspec.Struct, frozen=True):
    """An error on its way to the child."""

    type: str
    message: str
    details: dict[str, str] = {}


class ChildAnswer(msgspec.Struct, frozen=True, tag=True):
    """The answer to a `ChildRequest`."""

    number: int
    value: bytes = b""
    refusal: ChildRefusal | None = None


# from the child -------------------------------------------------------------------------------------


class ChildReady(msgspec.Struct, frozen=True, tag=True):
    """The program is loaded; the child waits for jobs."""


class ChildUnfit(msgspec.Struct, frozen=True, tag=True):
    """The program does not load; the child ends."""

    error: ErrorInfo


class ChildStarted(msgspec.Struct, frozen=True, tag=True):
    """The child has the job, which is responsible for what happens from now on."""


class ChildProgress(msgspec.Struct, frozen=True, tag=True):
    progress: Progress


class ChildRequest(msgspec.Struct, frozen=True, tag=True):
    number: int
    """never used twice by one child"""
    what: Literal["save", "extend", "inputs"]
    data: bytes = b""


class Followup(msgspec.Struct, frozen=True):
    """A `JobRequest` whose options and payload are evaluated where it was created."""

    name: str
    payload: bytes
    plan: Plan
    content: bytes | None
    id: str | None


class Returned(msgspec.Struct, frozen=True, tag=True):
    """`Done`, as it is sent."""

    result: bytes | None = None
    followups: tuple[Followup, ...] = ()


class Ended(msgspec.Struct, frozen=True, tag=True):
    ending: Returned | Failed | Misfit | PutOff | NotNeeded | Halted | GivenBack | Overrun | Gone


ToChild = RunJob | StopJob | ChildAnswer
FromChild = ChildReady | ChildUnfit | ChildStarted | ChildProgress | ChildRequest | Ended

_HEAD = 4


def frame(message: ToChild | FromChild) -> bytes:
    """A message as it is sent."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(_HEAD, "big") + body


class Pipe(asyncio.Protocol):
    """One end of the pipe. `receive` gets the bytes of each message; `ended` is done when the other side has closed it,
    after all its messages were received."""

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        self._receive = receive
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def over(cls, sock: socket.socket, receive: Callable[[bytes], None]) -> Pipe:
        """A pipe that owns this socket from now on."""
        _, pipe = await asyncio.get_running_loop().create_unix_connection(lambda: cls(receive), sock=sock)
        return pipe

    def send(self, message: ToChild | FromChild) -> None:
        """Send a message; never waits. Nothing is sent to a side that has closed the pipe."""
        self.send_frame(frame(message))

    def send_frame(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Close it once everything is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close it now."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        start = 0
        while (first := start + _HEAD) <= len(buffer):
            end = first + int.from_bytes(buffer[start:first], "big")
            if end > len(buffer):
                break
            self._receive(bytes(buffer[first:end]))
            start = end
        del buffer[:start]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason does not matter
        if not self.ended.done():
            self.ended.set_result(None)


# conversions ----------------------------------------------------------------------------------------


def to_wire(ending: Ending, settings: Settings) -> Ended:
    """The ending of a child's attempt. Raises `InvalidInput` for a follow-up that cannot be submitted."""
    assert not isinstance(ending, Crashed), "a crashed child sends nothing"
    if not isinstance(ending, Done):
        return Ended(ending)
    followups = tuple(_followup(request, settings) for request in ending.followups)
    return Ended(Returned(None if ending.result is None else bytes(ending.result), followups))


def from_wire(ended: Ended) -> Ending:
    ending = ended.ending
    if not isinstance(ending, Returned):
        return ending
    followups = tuple(
        JobRequest(one.name, msgspec.Raw(one.payload), one.plan, one.content, one.id) for one in ending.followups
    )
    return Done(None if ending.result is None else msgspec.Raw(ending.result), followups)


def _followup(request: JobRequest, settings: Settings) -> Followup:
    options = request.options
    plan = options if isinstance(options, Plan) else OptionReader(settings).read(options)
    payload = encoded(request.payload, field=f"follow-up {request.name}", limit=settings.payload_limit)
    return Followup(request.name, payload, plan, request.content, request.id)


def refusal(error: BaseException) -> ChildRefusal:
    details = {name: storable_text(value) for name, value in vars(error).items() if isinstance(value, str)}
    return ChildRefusal(type(error).__name__, storable_text(str(error)), details)


def refused(refusal: ChildRefusal) -> errors.MainstayError | Stopped:
    """The error of a refusal, with its own type if it is one of ours."""
    if refusal.type == Stopped.__name__:
        return Stopped(refusal.message)
    kind: Any = getattr(errors, refusal.type, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.MainstayError)):
        return errors.MainstayError(f"{refusal.type}: {refusal.message}")
    # without `__init__`, which would build a new message from parts
    error = kind.__new__(kind, refusal.message)
    vars(error).update(refusal.details)
    return error
