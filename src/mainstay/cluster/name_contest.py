"""Two programs that use the name of one node. A restart is allowed to; a second host is refused while the first beats.

Without this, each beat of the one would close the sessions of the other.
"""

from __future__ import annotations

from .membership_events import Alarm, JournalNote, MembershipAction
from .node_record import Contender, Membership, NodeRecord
from .status import NodeBeat


def must_wait(state: Membership, record: NodeRecord, beat: NodeBeat, now_s: float) -> bool:
    """Whether another start of a node has to wait until the one before it is silent."""
    if record.state == "closed" or beat.host == record.beat.host:
        return False  # on one host it is a restart, in all likelihood
    if record.contender is not None and record.contender.refused:
        return True  # the node has shown that it lives: a pause of it must not cost it its name
    return record.disconnected_s is None and now_s - record.heard_s < state.settings.contest_s


def contest(record: NodeRecord, beat: NodeBeat, now_s: float) -> list[MembershipAction]:
    """Note a second host that has to wait."""
    contender = record.contender
    if contender is None or contender.beat.incarnation != beat.incarnation:
        record.contender = Contender(beat=beat, first_s=now_s, last_s=now_s)
    elif beat.number > contender.beat.number:
        contender.beat, contender.last_s = beat, now_s
    return []


def incumbent_beat(record: NodeRecord, now_s: float) -> list[MembershipAction]:
    """The node itself is heard while a second host waits for its name."""
    contender = record.contender
    if contender is None or contender.first_s >= now_s:
        return []
    contender.incumbent_beats += 1
    if not contender.refused:
        return []
    return _alarm(record, contender.beat.host)


def retired_beat(state: Membership, record: NodeRecord, beat: NodeBeat, now_s: float) -> list[MembershipAction]:
    """A beat of a start that was replaced. One that is late is ignored; one that goes on is a duplicate."""
    retired = record.retired[beat.incarnation]
    if beat.number <= retired.number:
        return []
    retired.number = beat.number
    if now_s - retired.retired_s < state.settings.contest_s:
        return []
    retired.heard_s = now_s
    return _alarm(record, beat.host)


def contender_ended(record: NodeRecord, incarnation: str) -> None:
    """The second host has ended."""
    if record.contender is not None and record.contender.beat.incarnation == incarnation:
        record.contender = None


def expire(state: Membership, record: NodeRecord, now_s: float) -> list[MembershipAction]:
    """Forget a second host that is silent, and end the alarm."""
    oldest_s = now_s - state.settings.away_s
    if record.contender is not None and record.contender.last_s <= oldest_s:
        record.contender = None
    kept_s = now_s - state.settings.record_kept_s
    record.retired = {
        incarnation: retired
        for incarnation, retired in record.retired.items()
        if max(retired.heard_s, retired.retired_s) > kept_s
    }
    contested = record.contender is not None and record.contender.refused
    if record.duplicate and not contested and all(one.heard_s <= oldest_s for one in record.retired.values()):
        record.duplicate = False
        node = record.beat.node
        return [Alarm(key=f"duplicate:{node}", text=f"only one program uses the name {node} now", on=False)]
    return []


def _alarm(record: NodeRecord, host: str) -> list[MembershipAction]:
    if record.duplicate:
        return []
    record.duplicate = True
    node = record.beat.node
    text = (
        f"two programs use the node name {node}: the one on {record.beat.host or 'an unknown host'} is accepted, the "
        f"one on {host or 'an unknown host'} is refused; give it another name"
    )
    return [
        Alarm(key=f"duplicate:{node}", text=text, on=True),
        JournalNote(event="node_refused", about=node, text=text),
    ]


__all__ = ["contender_ended", "contest", "expire", "incumbent_beat", "must_wait", "retired_beat"]
