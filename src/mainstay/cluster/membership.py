"""Which nodes are alive: pure decisions of one manager. Events in, actions out; the time is an argument.

A node is *active* while a manager hears its beats, *away* after 10 s of silence (it gets no new work, and keeps what it
has), and *closed* after 25 s, when its work is taken back. Closing needs all of this: this manager leads, it reaches
its store and hears itself over the bus, no mass silence is going on, and neither this manager nor a second one got an
answer from the node. A node whose death is proven is closed at once.

>>> from mainstay.cluster.membership_events import BeatHeard, Tick
>>> from mainstay.cluster.status import NodeBeat
>>> state = Membership(manager="m1")
>>> beat = NodeBeat(node="n1", number=1, incarnation="a")
>>> [type(action).__name__ for action in decide(state, BeatHeard(beat=beat), 0)]
['JournalNote']
>>> [type(action).__name__ for action in decide(state, Tick(), 10)]
['MarkAway', 'JournalNote']
"""

from __future__ import annotations

import msgspec

from ..bus import OverloadLevel
from ..stores.remote import compatible
from . import manager_words, name_contest, silence
from .membership_events import (
    Alarm,
    AskResult,
    BeatHeard,
    BusAway,
    BusBack,
    CloseNode,
    HeardElsewhere,
    JournalNote,
    Leading,
    ManagerStopped,
    MarkBack,
    MembershipAction,
    MembershipEvent,
    NodeClosed,
    NodeEnded,
    PresenceClosed,
    SessionsClosed,
    StoreAway,
    StoreBack,
    StoredManagers,
    StoredSessions,
    Tick,
)
from .node_health import is_degraded, next_overload
from .node_record import Hearsay, Membership, NodeRecord
from .status import NodeBeat

Actions = list[MembershipAction]


def decide(state: Membership, event: MembershipEvent, now_s: float) -> Actions:
    """Bring an event into the state, and return what has to be done."""
    match event:
        case BeatHeard(beat=beat):
            actions = _beat(state, beat, now_s)
        case HeardElsewhere():
            actions = _heard_elsewhere(state, event, now_s)
        case ManagerStopped() | StoredManagers():
            actions = manager_words.ended(state, event)
        case PresenceClosed(node=node):
            actions = _presence_closed(state, node, now_s)
        case NodeEnded():
            actions = _ended(state, event, now_s)
        case NodeClosed():
            actions = _closed_elsewhere(state, event, now_s)
        case SessionsClosed(sessions=sessions):
            actions = _sessions_closed(state, sessions, now_s)
        case StoredSessions():
            actions = _stored(state, event, now_s)
        case Leading():
            actions = _leading(state, event)
        case AskResult():
            actions = _asked(state, event, now_s)
        case Tick():
            actions = silence.tick(state, now_s)
        case _:
            actions = _reach(state, event, now_s)
    return [*actions, *_closes(state, now_s)]


# what is heard ---------------------------------------------------------------------------------------


def _beat(state: Membership, beat: NodeBeat, now_s: float) -> Actions:
    record = state.nodes.get(beat.node)
    if record is None:
        return _refused(state, beat, now_s) or _joined(state, beat, now_s)
    if beat.incarnation == record.beat.incarnation:
        return _known_beat(state, record, beat, now_s)
    if beat.incarnation in record.retired:
        return name_contest.retired_beat(state, record, beat, now_s)
    return _refused(state, beat, now_s) or _new_incarnation(state, record, beat, now_s)


def _refused(state: Membership, beat: NodeBeat, now_s: float) -> Actions:
    if not state.version or not beat.version or compatible(state.version, beat.version):
        return []
    first = (beat.node, beat.incarnation) not in state.refused
    state.refused[beat.node, beat.incarnation] = now_s
    text = f"{beat.node} has version {beat.version}, which does not work with {state.version}; upgrade the node"
    alarm = Alarm(key=f"version:{beat.node}", text=text, on=True)
    # an action in any case: it also says that the beat was refused
    return [alarm, JournalNote(event="node_refused", about=beat.node, text=text)] if first else [alarm]


def _joined(state: Membership, beat: NodeBeat, now_s: float) -> Actions:
    record = NodeRecord(beat=beat, state=_state_of(beat), since_s=now_s, known_s=now_s, own_s=now_s, heard_s=now_s)
    record.overload = next_overload(record.overload, cpu=beat.cpu, memory=beat.memory)
    state.nodes[beat.node] = record
    return [_joined_note(beat), *_no_hearsay(state, beat.node)]


def _no_hearsay(state: Membership, node: str) -> Actions:
    """This manager hears the node itself."""
    said = state.hearsay.pop(node, None)
    if said is None or not said.warned:
        return []
    return [Alarm(key=f"hearsay:{node}", text=f"{state.manager} hears {node} now", on=False)]


def _joined_note(beat: NodeBeat) -> JournalNote:
    place = f" from {beat.host}" if beat.host else ""
    text = f"{beat.node} joined{place} with {beat.cores} cores"
    return JournalNote(event="node_joined", about=beat.node, text=text)


def _known_beat(state: Membership, record: NodeRecord, beat: NodeBeat, now_s: float) -> Actions:
    if beat.number <= record.beat.number:
        return []
    previous = record.beat
    record.beat = beat
    level = record.overload.level
    record.overload = next_overload(record.overload, cpu=beat.cpu, memory=beat.memory)
    record.own_s = record.heard_s = now_s
    record.disconnected_s = None
    record.unlisted = {session: since_s for session, since_s in record.unlisted.items() if session not in beat.sessions}
    record.alive()
    actions = [*_no_hearsay(state, beat.node), *_revived(state, record, now_s), *_level_note(level, record)]
    if beat.draining and not previous.draining:
        text = f"{beat.node} drains: it gets no new work and finishes {beat.running_count} jobs"
        actions.append(JournalNote(event="node_draining", about=beat.node, text=text))
    return [*actions, *name_contest.incumbent_beat(record, now_s)]


def _level_note(before: OverloadLevel, record: NodeRecord) -> Actions:
    """Placement treats a node differently from now on."""
    beat, now = record.beat, record.overload.level
    if is_degraded(before) == is_degraded(now):
        return []
    load = f"{beat.cpu:.0%} of its processors and {beat.memory:.0%} of its memory are in use"
    effect = "it gets work after all others" if is_degraded(now) else "it gets work as before"
    text = f"{beat.node} is {now}: {load}; {effect}"
    return [JournalNote(event="node_level", about=beat.node, text=text, cause=now)]


def _revived(state: Membership, record: NodeRecord, now_s: float) -> Actions:
    """The state of a node that was just heard."""
    node, before = record.beat.node, record.state
    if before == "closed":
        _spare(state, record)
        if not record.open_sessions():
            return []  # the node does not know yet that its sessions are closed
    after = _state_of(record.beat)
    if before == after:
        return []
    record.state, record.since_s, record.reason = after, now_s, ""
    if before not in ("away", "closed"):
        return []
    sort = "is back with a new session" if before == "closed" else "is heard again"
    return [MarkBack(node=node), JournalNote(event="node_back", about=node, text=f"{node} {sort}")]


def _spare(state: Membership, record: NodeRecord) -> None:
    """Do not close the sessions of a node that was heard again before the store had closed them."""
    for session in record.beat.sessions:
        waits = state.pending.get(session)
        if waits is not None and waits.cause == "silence":
            del state.pending[session]
            record.closed.pop(session, None)


def _new_incarnation(state: Membership, record: NodeRecord, beat: NodeBeat, now_s: float) -> Actions:
    if not record.beat.incarnation:  # known from the store only: the beat tells which of the sessions are in use
        return _adopted(state, record, beat, now_s)
    if name_contest.must_wait(state, record, beat, now_s):
        return name_contest.contest(record, beat, now_s)
    return silence.replace(state, record, beat, now_s)


def _adopted(state: Membership, record: NodeRecord, beat: NodeBeat, now_s: float) -> Actions:
    record.beat = msgspec.structs.replace(record.beat, incarnation=beat.incarnation)
    return [_joined_note(beat), *_known_beat(state, record, beat, now_s)]


def _heard_elsewhere(state: Membership, event: HeardElsewhere, now_s: float) -> Actions:
    actions: Actions = []
    if event.manager == state.manager:
        return actions
    if event.manager not in state.managers:
        actions.append(
            JournalNote(event="manager_joined", about=event.manager, text=f"manager {event.manager} is heard")
        )
    state.managers[event.manager] = now_s
    manager_words.heard(state, event, now_s)
    for node, heard in event.heard.items():
        heard_s = now_s - max(0.0, heard.age_s)
        record = state.nodes.get(node)
        if record is None or not record.beat.incarnation:
            if heard_s > now_s - state.settings.away_s:
                said = state.hearsay.setdefault(node, Hearsay(manager=event.manager, first_s=now_s, heard_s=heard_s))
                said.heard_s = max(said.heard_s, heard_s)
            if record is not None:  # its sessions may be those of the node that was heard
                record.heard_s = max(record.heard_s, heard_s)
        elif heard.incarnation == record.beat.incarnation and heard.number >= record.beat.number:
            actions += _heard_of(state, record, heard_s, now_s)
    return actions


def _heard_of(state: Membership, record: NodeRecord, heard_s: float, now_s: float) -> Actions:
    """Another manager has heard the node. A closed one comes back with a beat only, which tells its sessions."""
    if heard_s <= record.heard_s:
        return []
    record.heard_s = heard_s
    if now_s - heard_s >= state.settings.away_s or record.state == "closed":
        return []
    record.alive()
    if record.disconnected_s is not None and heard_s <= record.disconnected_s:
        return []
    record.disconnected_s = None
    return _revived(state, record, now_s)


def _presence_closed(state: Membership, node: str, now_s: float) -> Actions:
    record = state.nodes.get(node)
    if record is None or record.state in ("closed", "draining"):
        return []
    record.disconnected_s = now_s
    reason = "its connection to the bus was closed"
    return [] if record.state == "away" else silence.away(record, reason, "disconnected", now_s)


def _asked(state: Membership, event: AskResult, now_s: float) -> Actions:
    record = state.nodes.get(event.node)
    if record is None:
        return []
    if not event.answered:
        record.denials[event.manager] = None
    elif not event.incarnation or not record.beat.incarnation or event.incarnation == record.beat.incarnation:
        # alive, but not heard: it keeps its work, and gets no new work
        record.alive()
        record.answered_s = now_s
        record.silent_s = now_s  # it was counted as silent already
    return []


# what ends -------------------------------------------------------------------------------------------


def _ended(state: Membership, event: NodeEnded, now_s: float) -> Actions:
    record = state.nodes.get(event.node)
    sort = f"its parent process saw it end: {event.how}"
    if record is None or record.beat.incarnation not in ("", event.incarnation):
        silence.to_close(state, event.node, event.sessions, sort, "proven", now_s)
        if record is not None:
            record.closed.update(dict.fromkeys(event.sessions))
            if event.incarnation != record.beat.incarnation:
                name_contest.contender_ended(record, event.incarnation)
        return []
    if record.state == "closed" and not record.open_sessions():
        return []
    if event.sessions:
        record.unlisted.update(dict.fromkeys((s for s in event.sessions if s not in record.closed), now_s))
    return silence.close(state, record, sort, "proven", now_s)


def _closed_elsewhere(state: Membership, event: NodeClosed, now_s: float) -> Actions:
    actions = _sessions_closed(state, event.sessions, now_s)
    if any(isinstance(action, JournalNote) for action in actions):
        return [
            JournalNote(
                event="node_closed", about=event.node, text=f"{event.manager} closed {event.node}: {event.reason}"
            )
        ]
    return actions


def _sessions_closed(state: Membership, sessions: tuple[str, ...], now_s: float) -> Actions:
    actions: Actions = []
    for session in sessions:
        state.pending.pop(session, None)
    for node, record in state.nodes.items():
        mine = [session for session in sessions if session in record.beat.sessions or session in record.unlisted]
        if not mine:
            continue
        listed = any(session in record.beat.sessions for session in mine)
        record.closed.update(dict.fromkeys(mine))
        silence.bound(record)
        for session in mine:
            record.unlisted.pop(session, None)
        if listed and record.state != "closed" and not record.open_sessions():
            record.state, record.since_s, record.reason = "closed", now_s, "its sessions were closed"
            actions.append(JournalNote(event="node_closed", about=node, text=f"the sessions of {node} were closed"))
    return actions


def _stored(state: Membership, event: StoredSessions, now_s: float) -> Actions:
    for node, sessions in event.sessions.items():
        record = state.nodes.get(node)
        if record is None:
            record = NodeRecord(
                beat=NodeBeat(node=node, number=-1, incarnation=""),
                state="away",
                since_s=now_s,
                known_s=now_s,
                reason="it has not been heard since this manager began",
            )
            state.nodes[node] = record
        known = {*record.beat.sessions, *state.pending}
        record.starts = {session: event.starts[session] for session in sessions if session in event.starts}
        record.unlisted = {
            session: record.unlisted.get(session, now_s)
            for session in sessions
            if session not in known and session not in record.closed
        }
        if record.state == "closed" and record.unlisted and not record.beat.incarnation:
            record.state, record.since_s, record.known_s = "away", now_s, now_s
    for node, record in state.nodes.items():
        if node not in event.sessions:
            record.unlisted, record.starts = {}, {}
    return []


# this manager ----------------------------------------------------------------------------------------


def _leading(state: Membership, event: Leading) -> Actions:
    if event.leads == state.leads and event.since_s <= state.leads_since_s:
        return []
    was, state.leads = state.leads, event.leads
    if event.leads:
        state.leads_since_s = event.since_s
    for record in state.nodes.values():
        record.asked_s, record.ask_rounds, record.denials = float("-inf"), 0, {}
    for waits in state.pending.values():
        waits.sent_s = float("-inf")
    if event.leads:
        return [JournalNote(event="lead_taken", about="placement", text=f"{state.manager} leads placement")]
    if was:
        return [JournalNote(event="lead_lost", about="placement", text=f"{state.manager} leads placement no longer")]
    return []


def _reach(state: Membership, event: StoreAway | StoreBack | BusAway | BusBack, now_s: float) -> Actions:
    where = "store" if isinstance(event, StoreAway | StoreBack) else "bus"
    away = isinstance(event, StoreAway | BusAway)
    if away == (state.store_away if where == "store" else state.bus_away):
        return []
    if where == "store":
        state.store_away = away
        state.counted_s = now_s
    else:
        state.bus_away = away
        state.deaf_until_s = now_s
    text = f"{state.manager} does not reach its {where}; it judges no node"
    alarm = Alarm(key=where, text=text, on=away)
    if away:
        state.away_since_s[where] = now_s
        return [alarm, JournalNote(event=f"{where}_away", about=state.manager, text=text)]
    seconds = now_s - state.away_since_s.pop(where, now_s)
    text = f"{state.manager} reaches its {where} again, after {seconds:.0f} s"
    return [alarm, JournalNote(event=f"{where}_back", about=state.manager, text=text, seconds=seconds)]


def _closes(state: Membership, now_s: float) -> Actions:
    """The sessions to close now: only a leader that reaches its store can."""
    if not state.leads or state.store_away:
        return []
    due: dict[tuple[str, str, str], list[str]] = {}
    for session, waits in state.pending.items():
        if now_s - waits.sent_s >= state.settings.ask_every_s:
            waits.sent_s = now_s
            due.setdefault((waits.node, waits.reason, waits.cause), []).append(session)
    return [
        CloseNode(node=node, sessions=tuple(sessions), reason=reason, cause=state.pending[sessions[0]].cause)
        for (node, reason, _), sessions in due.items()
    ]


def _state_of(beat: NodeBeat) -> silence.LiveState:
    return "draining" if beat.draining else "active"


__all__ = ["Actions", "Membership", "decide"]
