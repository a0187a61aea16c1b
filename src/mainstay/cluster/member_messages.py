"""The messages about nodes between nodes and managers, in the envelope that all requests of a cluster have."""

from __future__ import annotations

from typing import Any

import msgspec

from .membership_events import HeardNode

HEARD = "control.manager.heard"
CLOSED = "control.manager.closed"
ENDED = "control.manager.ended"


class HeardMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager tells the others every second."""

    manager: str
    heard: dict[str, HeardNode]
    leads: bool = False
    """whether it holds the lead `placement`"""
    managers: tuple[str, ...] = ()
    """the other managers that it has heard recently"""
    leaving: bool = False
    """it stops: its silence from now on means nothing"""


class ClosedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A leader has closed sessions."""

    manager: str
    node: str
    sessions: tuple[str, ...]
    reason: str


class NodeEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What the parent of a node reports: the arguments of `control.ended.NODE`."""

    incarnation: str
    how: str
    sessions: tuple[str, ...] = ()


class EndedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The manager that got such a report passes it on to the others, because any of them may lead."""

    manager: str
    node: str
    end: NodeEnd


class AskArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `control.manager.NAME.ask`."""

    node: str


class AskAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a node is alive, for the manager that asked. The answer of a node to a ping has an incarnation, too."""

    answered: bool = True
    incarnation: str = ""


class BeatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a manager to a beat: it has heard the node, and the leader hears the manager."""

    closed: tuple[str, ...] = ()
    """those sessions in the beat that are closed: their work is taken back"""


class MemberEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """A request: version, cluster, environment, message id, arguments."""

    v: str
    c: str
    e: str
    id: str = ""
    a: msgspec.Raw = msgspec.Raw(b"\x80")


class MemberAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a request."""

    ok: Any = None
    error: Any = None
    now: int = 0
    m: str = ""


pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode

__all__ = [
    "CLOSED",
    "ENDED",
    "HEARD",
    "AskAnswer",
    "AskArguments",
    "BeatAnswer",
    "ClosedMessage",
    "EndedMessage",
    "HeardMessage",
    "MemberAnswer",
    "MemberEnvelope",
    "NodeEnd",
    "pack",
    "unpack",
]
