"""What the silence of nodes leads to: away, asked, closed, forgotten; and the exception of a mass silence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from . import name_contest
from .membership_events import (
    Alarm,
    AskThrough,
    CloseCause,
    Forget,
    JournalNote,
    MarkAway,
    MembershipAction,
)
from .node_record import Contender, Membership, NodeRecord, PendingClose, RetiredIncarnation
from .status import NodeBeat

Actions = list[MembershipAction]
LiveState = Literal["active", "draining"]
AwayCause = Literal["silence", "disconnected"]

#: closed sessions of a node that are remembered; more than it can have opened since its last beat
_CLOSED_KEPT = 1000
_MASS = "mass_silence"


def tick(state: Membership, now_s: float) -> Actions:
    """Judge the silence of all nodes."""
    actions = _own_pause(state, now_s)
    actions += _managers(state, now_s)
    for record in list(state.nodes.values()):
        actions += _contested(state, record, now_s)
    if not state.bus_away:
        for record in state.nodes.values():
            actions += _suspect(state, record, now_s)
        actions += _mass_silence(state, now_s)
    if state.may_judge():
        for record in state.nodes.values():
            actions += _judge(state, record, now_s)
    return [*actions, *_hearsay(state, now_s), *_forget(state, now_s)]


def _own_pause(state: Membership, now_s: float) -> Actions:
    """A manager that stood still has heard nothing meanwhile; what waits in its queues is read after this tick."""
    before_s, state.ticked_s = state.ticked_s, now_s
    if before_s is not None and now_s - before_s >= state.settings.manager_silent_s:
        state.deaf_until_s = now_s
    return []


def _managers(state: Membership, now_s: float) -> Actions:
    gone = [name for name, at_s in state.managers.items() if now_s - at_s >= state.settings.manager_silent_s]
    for name in gone:
        del state.managers[name]
    if gone:  # for a moment longer it may answer nodes that this manager does not hear
        state.counted_s = max(state.counted_s, now_s + state.settings.manager_silent_s)
    return [JournalNote(event="manager_left", about=name, text=f"manager {name} is silent") for name in gone]


def _contested(state: Membership, record: NodeRecord, now_s: float) -> Actions:
    actions = name_contest.expire(state, record, now_s)
    contender: Contender | None = record.contender
    if contender is not None and not name_contest.must_wait(state, record, contender.beat, now_s):
        actions += replace(state, record, contender.beat, now_s)
        record.heard_s = record.own_s = contender.last_s
    return actions


# away ------------------------------------------------------------------------------------------------


def away(record: NodeRecord, reason: str, cause: AwayCause, now_s: float) -> Actions:
    """Give a node no new work."""
    node = record.beat.node
    record.state, record.since_s, record.reason = "away", now_s, reason
    text = f"{node} is away: {reason}"
    note = JournalNote(event="node_away", about=node, text=text, cause=cause, seconds=record.quiet_s(now_s))
    return [MarkAway(node=node, reason=reason), note]


def _suspect(state: Membership, record: NodeRecord, now_s: float) -> Actions:
    quiet_s = state.silence_s(record, now_s)
    if record.state == "closed" or quiet_s < state.settings.away_s:
        return []
    if record.silent_s is None:
        record.silent_s = now_s
        state.silenced[record.beat.node] = now_s
    if record.state == "away":
        return []
    return away(record, f"no manager has heard it for {quiet_s:.0f} s", "silence", now_s)


def _mass_silence(state: Membership, now_s: float) -> Actions:
    settings, actions = state.settings, Actions()
    if state.hold_until_s is not None and now_s >= state.hold_until_s:
        state.hold_until_s = None
        text = "silent nodes are judged again"
        actions += [
            Alarm(key=_MASS, text=text, on=False),
            JournalNote(event="mass_silence_over", about="nodes", text=text),
        ]
    state.silenced = {
        node: at_s
        for node, at_s in state.silenced.items()
        if now_s - at_s <= settings.mass_window_s and node in state.nodes and state.nodes[node].silent_s is not None
    }
    nodes = sum(record.state != "closed" for record in state.nodes.values())
    silent = len(state.silenced)
    if silent < settings.mass_nodes or silent <= nodes * settings.mass_part:
        return actions
    state.silenced = {}
    first = state.hold_until_s is None
    state.hold_until_s = now_s + settings.hold_s
    if not first:
        return actions
    text = (
        f"{silent} of {nodes} nodes became silent within {settings.mass_window_s:.0f} s; the network is the probable "
        f"cause, so no silent node is judged for {settings.hold_s:.0f} s. Check the bus"
    )
    return [
        *actions,
        Alarm(key=_MASS, text=text, on=True),
        JournalNote(event=_MASS, about="nodes", text=text),
    ]


# closed ----------------------------------------------------------------------------------------------


def _judge(state: Membership, record: NodeRecord, now_s: float) -> Actions:
    settings = state.settings
    if record.state == "closed":
        return _close_rest(state, record, now_s)
    if record.state != "away" and now_s - record.heard_s < settings.away_s:
        return _close_unlisted(state, record, now_s)
    quiet_s = state.judged_silence_s(record, now_s)
    if quiet_s < settings.ask_s:
        return []
    if _denied(state, record):
        if quiet_s < settings.closed_s:
            return []
        reason = f"no manager has heard it for {quiet_s:.0f} s, and it does not answer"
        return close(state, record, reason, "silence", now_s)
    if now_s - record.asked_s < settings.ask_every_s:
        return []
    others = sorted(state.managers)
    second = [others[record.ask_rounds % len(others)]] if others else []
    record.asked_s = now_s
    record.ask_rounds += 1
    return [AskThrough(node=record.beat.node, managers=(state.manager, *second))]


def _denied(state: Membership, record: NodeRecord) -> bool:
    """Whether enough managers asked the node in vain."""
    if state.manager not in record.denials:
        return False
    if not state.managers or len(record.denials) > 1:
        return True
    return record.ask_rounds > state.settings.ask_tries


def _close_unlisted(state: Membership, record: NodeRecord, now_s: float) -> Actions:
    """Close the sessions in the store that a living node has not listed for as long as a silent node would have, and
    at once those of an earlier start of it, which ended while no manager was running. The last beat counts that this
    manager has heard itself: the word of another does not say which sessions it lists."""
    limit_s = state.settings.closed_s
    late = [
        session
        for session, since_s in record.unlisted.items()
        if record.own_s - max(since_s, state.leads_since_s, state.counted_s) >= limit_s
        or _is_of_earlier_start(record, session)
    ]
    if not late or not record.beat.incarnation:
        return []
    node = record.beat.node
    for session in late:
        del record.unlisted[session]
    record.closed.update(dict.fromkeys(late))
    to_close(state, node, late, "its node does not know the session", "replaced", now_s)
    text = f"{len(late)} sessions of {node} are closed: the node does not know them"
    return [JournalNote(event="node_closed", about=node, text=text, cause="replaced", seconds=record.quiet_s(now_s))]


def _is_of_earlier_start(record: NodeRecord, session: str) -> bool:
    """Whether the node that beats was started again since, on the same host. A session that was opened later than those
    that it lists is of its next start, whose first beat is on its way."""
    beat, start = record.beat, record.starts.get(session)
    if start is None or start.host != beat.host or start.pid in (0, beat.pid):
        return False
    listed = [record.starts[each].at_ms for each in beat.sessions if each in record.starts]
    return bool(listed) and start.at_ms < min(listed)


def _close_rest(state: Membership, record: NodeRecord, now_s: float) -> Actions:
    """Close what is left in the store of a node that is closed already: the node opened it and went silent again."""
    if not record.unlisted or state.judged_silence_s(record, now_s) < state.settings.closed_s:
        return []
    late = [session for session, since_s in record.unlisted.items() if now_s - since_s >= state.settings.closed_s]
    for session in late:
        del record.unlisted[session]
    record.closed.update(dict.fromkeys(late))
    to_close(state, record.beat.node, late, record.reason, "silence", now_s)
    return []


def close(state: Membership, record: NodeRecord, reason: str, cause: CloseCause, now_s: float) -> Actions:
    """Close a node, with all its sessions."""
    node, sessions = record.beat.node, record.all_sessions()
    to_close(state, node, sessions, reason, cause, now_s)
    record.closed.update(dict.fromkeys(sessions))
    record.unlisted = {}
    bound(record)
    record.state, record.since_s, record.reason = "closed", now_s, reason
    record.silent_s = None
    state.silenced.pop(node, None)
    text = f"{node} is closed ({cause}): {reason}; {len(sessions)} sessions, {record.beat.running_count} running jobs"
    seconds = record.quiet_s(now_s)
    return [JournalNote(event="node_closed", about=node, text=text, cause=cause, seconds=seconds)]


def replace(state: Membership, record: NodeRecord, beat: NodeBeat, now_s: float) -> Actions:
    """Let another start of a node take the place of the one before it."""
    node, old = beat.node, record.beat
    sessions = tuple(session for session in record.all_sessions() if session not in beat.sessions)
    was_closed = record.state == "closed"
    record.retired[old.incarnation] = RetiredIncarnation(number=old.number, retired_s=now_s)
    to_close(state, node, sessions, f"{node} was started again", "replaced", now_s)
    record.closed.update(dict.fromkeys(sessions))
    bound(record)
    fresh = NodeRecord(
        beat=beat,
        state="draining" if beat.draining else "active",
        since_s=now_s,
        known_s=now_s,
        own_s=now_s,
        heard_s=now_s,
        closed=record.closed,
        retired=record.retired,
        duplicate=record.duplicate,
    )
    state.nodes[node] = fresh
    state.silenced.pop(node, None)
    host = f" on {beat.host}" if beat.host else ""
    actions: Actions = []
    if not was_closed:
        text = f"{node} was started again{host}: {len(sessions)} sessions of the earlier start are closed"
        note = JournalNote(event="node_closed", about=node, text=text, cause="replaced", seconds=record.quiet_s(now_s))
        actions.append(note)
    joined = f"{node} joined{host} with {beat.cores} cores"
    return [*actions, JournalNote(event="node_joined", about=node, text=joined)]


def to_close(
    state: Membership, node: str, sessions: Iterable[str], reason: str, cause: CloseCause, now_s: float
) -> None:
    """Remember sessions to close. A manager that does not lead keeps them, for the case that it takes over."""
    for session in sessions:
        known = state.pending.get(session)
        if known is None or cause == "proven":
            sent_s = float("-inf") if known is None else known.sent_s
            state.pending[session] = PendingClose(node=node, reason=reason, cause=cause, since_s=now_s, sent_s=sent_s)


def bound(record: NodeRecord) -> None:
    """Forget the oldest closed sessions."""
    for session in list(record.closed)[:-_CLOSED_KEPT]:
        del record.closed[session]


# forgotten -------------------------------------------------------------------------------------------


def _hearsay(state: Membership, now_s: float) -> Actions:
    """Nodes that only other managers hear are never closed; they are reported, and forgotten in time."""
    actions: Actions = []
    for node, said in list(state.hearsay.items()):
        key, settings = f"hearsay:{node}", state.settings
        if now_s - said.heard_s >= settings.hearsay_kept_s:
            del state.hearsay[node]
            if said.warned:
                actions.append(Alarm(key=key, text=f"{node} is not heard by any manager now", on=False))
        elif not said.warned and now_s - said.first_s >= settings.hearsay_warning_s:
            said.warned = True
            text = f"{said.manager} hears {node}, and {state.manager} does not; check the bus between them"
            actions.append(Alarm(key=key, text=text, on=True))
    return actions


def _forget(state: Membership, now_s: float) -> Actions:
    kept_s = now_s - state.settings.record_kept_s
    gone = [node for node, record in state.nodes.items() if record.state == "closed" and record.since_s <= kept_s]
    for node in gone:
        del state.nodes[node]
    for session, waits in list(state.pending.items()):
        if waits.since_s <= kept_s and not state.leads:
            del state.pending[session]
    actions: Actions = [Forget(node=node) for node in gone]
    for (node, incarnation), heard_s in list(state.refused.items()):
        if now_s - heard_s >= state.settings.away_s:
            del state.refused[node, incarnation]
            text = f"{node} of another version is not heard any longer"
            actions.append(Alarm(key=f"version:{node}", text=text, on=False))
    return actions


__all__ = ["AwayCause", "LiveState", "away", "bound", "close", "replace", "tick", "to_close"]
