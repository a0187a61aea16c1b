"""What a manager remembers of the nodes: the state of `membership.decide`. Times are seconds of the manager's loop."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .liveness_settings import LivenessSettings
from .membership_events import CloseCause, HeardNode, SessionStart
from .node_health import OverloadState, is_degraded
from .status import NodeBeat, NodeInfo, NodeState

_NEVER = float("-inf")


class RetiredIncarnation(msgspec.Struct, kw_only=True):
    """An earlier start of a node, whose beats are ignored."""

    number: int
    """of its last beat"""
    retired_s: float
    heard_s: float = _NEVER
    """when it was last heard although it was replaced"""


class Contender(msgspec.Struct, kw_only=True):
    """A second host that uses the name of a node."""

    beat: NodeBeat
    first_s: float
    last_s: float
    incumbent_beats: int = 0
    """how often the node was heard since; a single one may have been on its way"""

    @property
    def refused(self) -> bool:
        return self.incumbent_beats > 1


class NodeRecord(msgspec.Struct, kw_only=True):
    """One node."""

    beat: NodeBeat
    """the newest; without an incarnation if the node is only known from the store"""
    state: NodeState
    since_s: float
    known_s: float
    reason: str = ""
    own_s: float = _NEVER
    """when this manager heard it"""
    heard_s: float = _NEVER
    """when a manager heard it"""
    answered_s: float = _NEVER
    """when it answered a question"""
    silent_s: float | None = None
    """when its silence was noticed"""
    disconnected_s: float | None = None
    """when the bus lost its connection; None: it has been heard since"""
    closed: dict[str, None] = {}
    """its closed sessions: a beat that lists only these does not bring it back"""
    unlisted: dict[str, float] = {}
    """sessions in the store that its beats do not list, and since when"""
    starts: Mapping[str, SessionStart] = {}
    """of its sessions in the store"""
    retired: dict[str, RetiredIncarnation] = {}
    contender: Contender | None = None
    duplicate: bool = False
    """the alarm about a duplicate name is on"""
    asked_s: float = _NEVER
    ask_rounds: int = 0
    denials: dict[str, None] = {}
    """the managers that got no answer from it since its last sign of life"""
    overload: OverloadState = OverloadState()

    def open_sessions(self) -> tuple[str, ...]:
        """The sessions of its newest beat that are not closed."""
        return tuple(session for session in self.beat.sessions if session not in self.closed)

    def all_sessions(self) -> tuple[str, ...]:
        """Those, and the sessions that are only in the store."""
        return tuple(dict.fromkeys((*self.open_sessions(), *self.unlisted)))

    def quiet_s(self, now_s: float) -> float | None:
        """For how long no manager has heard it; None: none ever has."""
        return None if self.heard_s == _NEVER else round(max(0.0, now_s - self.heard_s), 1)

    def alive(self) -> None:
        """Forget the suspicion, after a sign of life."""
        self.silent_s = None
        self.asked_s = _NEVER
        self.ask_rounds = 0
        self.denials = {}


class ManagerWord(msgspec.Struct, frozen=True, kw_only=True):
    """What another manager said last about itself."""

    at_s: float
    leads: bool
    hears_us: bool


class Hearsay(msgspec.Struct, kw_only=True):
    """A node that only other managers hear."""

    manager: str
    first_s: float
    heard_s: float
    warned: bool = False


class PendingClose(msgspec.Struct, kw_only=True):
    """A session that has to be closed; the store has not confirmed it yet."""

    node: str
    reason: str
    cause: CloseCause
    since_s: float
    sent_s: float = _NEVER


class Membership(msgspec.Struct, kw_only=True):
    """All that one manager knows about the nodes. Changed by `membership.decide` only."""

    manager: str
    settings: LivenessSettings = LivenessSettings()
    version: str = ""
    """of this manager; nodes with a version that does not work with it are refused. Empty: all are accepted"""
    nodes: dict[str, NodeRecord] = {}
    managers: dict[str, float] = {}
    """the other managers, and when each was heard"""
    words: dict[str, ManagerWord] = {}
    """of each of them, and of those that are silent and may still be at work"""
    hearsay: dict[str, Hearsay] = {}
    pending: dict[str, PendingClose] = {}
    """by session"""
    refused: dict[tuple[str, str], float] = {}
    """nodes and incarnations with a wrong version, and when they were last heard"""
    leads: bool = False
    leads_since_s: float = _NEVER
    store_away: bool = False
    bus_away: bool = False
    away_since_s: dict[str, float] = {}
    """of the store and the bus, while they are away"""
    counted_s: float = _NEVER
    """silence before this moment does not count for closing: this manager could not judge"""
    deaf_until_s: float = _NEVER
    """silence before this moment does not count at all: this manager could not hear"""
    ticked_s: float | None = None
    silenced: dict[str, float] = {}
    """nodes that became silent, and when, within the window of a mass silence"""
    hold_until_s: float | None = None
    """no node is judged until then, after a mass silence"""

    def silence_s(self, record: NodeRecord, now_s: float) -> float:
        """For how long no manager has heard the node."""
        return now_s - max(record.heard_s, record.known_s, self.deaf_until_s)

    def judged_silence_s(self, record: NodeRecord, now_s: float) -> float:
        """For how long it has been silent while this manager could judge it."""
        from_s = max(record.heard_s, record.answered_s, record.known_s, self.deaf_until_s)
        return now_s - max(from_s, self.counted_s, self.leads_since_s)

    def may_judge(self) -> bool:
        """Whether this manager may close silent nodes now."""
        return self.leads and not self.store_away and not self.bus_away and self.hold_until_s is None


def heard_list(state: Membership, now_s: float) -> dict[str, HeardNode]:
    """What this manager tells the others: the nodes it has heard itself. What it knows from others is left out, or two
    managers could keep a dead node alive between them."""
    return {
        name: HeardNode(
            incarnation=record.beat.incarnation, number=record.beat.number, age_s=max(0.0, now_s - record.own_s)
        )
        for name, record in state.nodes.items()
        if now_s - record.own_s <= state.settings.closed_s
    }


def active_sessions(state: Membership) -> set[str]:
    """The sessions that may get new work."""
    return {
        session
        for record in state.nodes.values()
        if record.state == "active"
        for session in record.open_sessions()
        if session not in state.pending
    }


def degraded_sessions(state: Membership) -> set[str]:
    """The sessions of nodes that are stressed or overloaded."""
    records = [record for record in state.nodes.values() if is_degraded(record.overload.level)]
    return {session for record in records for session in record.open_sessions()}


def may_claim(state: Membership, node: str) -> bool:
    """Whether a node gets new work. One that joins has not been heard yet; draining is up to the store."""
    record = state.nodes.get(node)
    return record is None or record.state in ("active", "draining")


def node_infos(state: Membership, *, now_s: float, now_ms: int) -> list[NodeInfo]:
    """The nodes for people, by name."""

    def at_ms(moment_s: float) -> int:
        return 0 if moment_s == _NEVER else now_ms - round((now_s - moment_s) * 1000)

    return [
        NodeInfo(
            name=name,
            state=record.state,
            since_ms=at_ms(record.since_s),
            heard_ms=at_ms(record.heard_s),
            beat=record.beat,
            reason=record.reason,
            overload=record.overload.level,
        )
        for name, record in sorted(state.nodes.items())
    ]


__all__ = [
    "Contender",
    "Hearsay",
    "ManagerWord",
    "Membership",
    "NodeRecord",
    "PendingClose",
    "RetiredIncarnation",
    "active_sessions",
    "degraded_sessions",
    "heard_list",
    "may_claim",
    "node_infos",
]
