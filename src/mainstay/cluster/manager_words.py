"""What managers say about themselves, and whether a node may rely on the answer of one of them.

A node that is answered goes on working, and one that the leader does not hear is closed. So a manager answers only if
what it hears reaches the leader: else a cut between two managers would let the work of a node run twice.
"""

from __future__ import annotations

from .membership_events import HeardElsewhere, JournalNote, ManagerStopped, MembershipAction, StoredManagers
from .node_record import ManagerWord, Membership
from .status import NodeBeat

#: a word counts for this number of intervals
_FRESH = 3


def heard(state: Membership, event: HeardElsewhere, now_s: float) -> None:
    """Remember the word of another manager."""
    hears_us = state.manager in event.managers
    state.words[event.manager] = ManagerWord(at_s=now_s, leads=event.leads, hears_us=hears_us)


def ended(state: Membership, event: ManagerStopped | StoredManagers) -> list[MembershipAction]:
    """Forget a manager that has stopped, and silent ones that have no session in the store any more: they do not lead,
    and hear no node."""
    if isinstance(event, StoredManagers):
        for name in [name for name in state.words if name not in state.managers and name not in event.names]:
            del state.words[name]
        return []
    state.words.pop(event.manager, None)
    if state.managers.pop(event.manager, None) is None:
        return []
    text = f"manager {event.manager} has stopped"
    return [JournalNote(event="manager_left", about=event.manager, text=text)]


def answers_beat(state: Membership, beat: NodeBeat, now_s: float, *, led_elsewhere: bool) -> bool:
    """Whether this manager answers a beat that it has just heard: it leads, or the leader hears it. Without a leader no
    node is closed; but a manager that cannot be heard may lead, or the store says that another one does
    (`led_elsewhere`)."""
    record = state.nodes.get(beat.node)
    if record is None or record.beat.incarnation != beat.incarnation or record.beat.number < beat.number:
        return False  # refused: it wants the name of another, or has another version
    if state.leads:
        return True
    oldest_s = now_s - _FRESH * state.settings.heard_every_s
    leaders = [word for word in state.words.values() if word.leads and word.at_s > oldest_s]
    if led_elsewhere and not leaders:
        return False
    return all(word.hears_us and word.at_s > oldest_s for word in leaders or state.words.values())


__all__ = ["answers_beat", "ended", "heard"]
