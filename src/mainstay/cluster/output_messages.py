"""The messages about the output of jobs, between operators, managers and nodes.

operator -> manager   data.cluster.operator.NAME.output   JobOutputQuery   -> JobOutput
manager  -> node      control.node.NAME.output            AttemptQuery  -> OutputReply
node     -> operators telemetry.output.NODE               OutputChunk, while an operator follows; it may be lost
"""

from __future__ import annotations

import msgspec

#: how long a node publishes the output of an attempt after it was asked to
FOLLOW_S = 10.0


class JobOutputQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator asks."""

    job: str
    token: int = 0
    """of the attempt; 0: the newest"""
    after: int | None = None
    """the position that it has read up to; None: nothing yet"""
    follow: bool = False


class AttemptQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The same for a node."""

    job: str
    token: int
    after: int | None = None
    follow: bool = False


class OutputReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a node has kept of it."""

    kept: bool = False
    """False: it printed nothing, or the node has removed it since"""
    start: int = 0
    end: int = 0
    data: bytes = b""
    dropped: int = 0
    error: str = ""


class JobOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The output of one attempt, for an operator."""

    job: str
    status: str
    settled: bool
    token: int
    """of the attempt; 0: it has not begun"""
    node: str
    """where it ran; empty: unknown"""
    output: OutputReply = OutputReply()
    missing: str = ""
    """why there is no output; empty: there is"""


class OutputChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the output of a running attempt. `start` counts from its first byte: a gap is what was lost."""

    job: str
    token: int
    start: int
    data: bytes


__all__ = ["FOLLOW_S", "AttemptQuery", "JobOutput", "JobOutputQuery", "OutputChunk", "OutputReply"]
