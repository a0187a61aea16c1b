"""What `membership.decide` is given, and what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from .status import NodeBeat

CloseCause = Literal["silence", "proven", "replaced"]
"""silence: it was silent for too long and did not answer; proven: a process on its host saw it end; replaced: another
start of the node has taken its place, or does not know the session"""


# events --------------------------------------------------------------------------------------------


class BeatHeard(msgspec.Struct, frozen=True, kw_only=True):
    """This manager has received a beat."""

    beat: NodeBeat


class HeardNode(msgspec.Struct, frozen=True, kw_only=True):
    """The last beat of a node that a manager has received itself."""

    incarnation: str
    number: int
    age_s: float


class HeardElsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """Another manager has reported which nodes it has heard."""

    manager: str
    heard: Mapping[str, HeardNode]
    leads: bool = False
    """it holds the lead `placement`"""
    managers: tuple[str, ...] = ()
    """the managers that it hears"""


class ManagerStopped(msgspec.Struct, frozen=True, kw_only=True):
    """Another manager has said that it stops."""

    manager: str


class StoredManagers(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the open sessions in the store that are not of nodes: a manager without one has ended."""

    names: frozenset[str]


class PresenceClosed(msgspec.Struct, frozen=True, kw_only=True):
    """The bus has lost a connection of a node. This proves nothing: the node may be about to reconnect."""

    node: str


class NodeEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The parent process of a node has seen it end: its death is proven."""

    node: str
    incarnation: str
    how: str
    sessions: tuple[str, ...] = ()
    """its sessions, if the parent knows them"""


class NodeClosed(msgspec.Struct, frozen=True, kw_only=True):
    """Another manager, which leads, has closed sessions of a node."""

    manager: str
    node: str
    sessions: tuple[str, ...]
    reason: str


class SessionsClosed(msgspec.Struct, frozen=True, kw_only=True):
    """The store has confirmed that sessions are closed."""

    sessions: tuple[str, ...]


class SessionStart(msgspec.Struct, frozen=True, kw_only=True):
    """The start of the node program to which a session belongs."""

    host: str
    pid: int
    at_ms: int
    """when the session was opened"""


class StoredSessions(msgspec.Struct, frozen=True, kw_only=True):
    """The open sessions of nodes that are in the store, by node. Sessions can be those of nodes that ended while no
    manager was running."""

    sessions: Mapping[str, tuple[str, ...]]
    starts: Mapping[str, SessionStart] = {}
    """by session"""


class Leading(msgspec.Struct, frozen=True, kw_only=True):
    """This manager has got or lost the lead `placement`. Silence is counted from `since_s`, the takeover."""

    leads: bool
    since_s: float = 0.0


class AskResult(msgspec.Struct, frozen=True, kw_only=True):
    """A manager has asked a node directly."""

    node: str
    manager: str
    answered: bool
    incarnation: str = ""
    """of the node that has answered; empty: not known"""


class StoreAway(msgspec.Struct, frozen=True):
    """This manager cannot reach its store."""


class StoreBack(msgspec.Struct, frozen=True):
    """It can again."""


class BusAway(msgspec.Struct, frozen=True):
    """This manager does not hear itself over the bus."""


class BusBack(msgspec.Struct, frozen=True):
    """It does again."""


class Tick(msgspec.Struct, frozen=True):
    """Time has passed. Due every second; silence is judged here."""


MembershipEvent = (
    BeatHeard
    | HeardElsewhere
    | ManagerStopped
    | StoredManagers
    | PresenceClosed
    | NodeEnded
    | NodeClosed
    | SessionsClosed
    | StoredSessions
    | Leading
    | AskResult
    | StoreAway
    | StoreBack
    | BusAway
    | BusBack
    | Tick
)


# actions -------------------------------------------------------------------------------------------


class MarkAway(msgspec.Struct, frozen=True, kw_only=True):
    """Give the node no new work; take nothing from it."""

    node: str
    reason: str


class MarkBack(msgspec.Struct, frozen=True, kw_only=True):
    """The node may get work again."""

    node: str


class AskThrough(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the node whether it is alive, from each of these managers, and report each `AskResult`."""

    node: str
    managers: tuple[str, ...]


class CloseNode(msgspec.Struct, frozen=True, kw_only=True):
    """Close sessions of a node under the lead; the store takes their work back. Requested again until
    `SessionsClosed`."""

    node: str
    sessions: tuple[str, ...]
    reason: str
    cause: CloseCause


class JournalNote(msgspec.Struct, frozen=True, kw_only=True):
    """Write an entry to the journal: a `JournalEntry` without time and manager."""

    event: str
    about: str
    text: str
    cause: str = ""
    seconds: float | None = None


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """Raise or end an alarm."""

    key: str
    text: str
    on: bool


class Forget(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a closed node has been dropped."""

    node: str


MembershipAction = MarkAway | MarkBack | AskThrough | CloseNode | JournalNote | Alarm | Forget

__all__ = [
    "Alarm",
    "AskResult",
    "AskThrough",
    "BeatHeard",
    "BusAway",
    "BusBack",
    "CloseCause",
    "CloseNode",
    "Forget",
    "HeardElsewhere",
    "HeardNode",
    "JournalNote",
    "Leading",
    "ManagerStopped",
    "MarkAway",
    "MarkBack",
    "MembershipAction",
    "MembershipEvent",
    "NodeClosed",
    "NodeEnded",
    "PresenceClosed",
    "SessionStart",
    "SessionsClosed",
    "StoreAway",
    "StoreBack",
    "StoredManagers",
    "StoredSessions",
    "Tick",
]
