"""Sentences about the node that holds or held a job, from what managers know."""

from __future__ import annotations

from ...clock import duration_text
from ...model import Session
from ...words import span
from .attempts import Attempt
from .facts import Facts

#: a closing is in the journal about when the store takes the work back
_BEFORE_MS, _AFTER_MS = 60_000, 10_000


def heard(holder: Session, facts: Facts) -> str:
    """How alive the node of a session is, as the end of a sentence; empty: it is not a session of a node."""
    if facts.cluster is None:
        return ", as a session of a node, whose heartbeats only managers see" if holder.standing else ""
    node = facts.cluster.node_of(holder.id)
    if node is None:
        return ""
    place = f"node {node.name}" + (f" on {node.host}" if node.host else "")
    ago = f", last heard {span(facts.cluster.at_ms - node.heard_ms)} ago" if node.heard_ms else ""
    why = f": {node.reason}" if node.reason else ""
    return f"; {place} has been {node.state} for {span(facts.cluster.at_ms - node.since_ms)}{ago}{why}"


def while_away(holder: Session, facts: Facts) -> list[str]:
    """What comes next for the work of a node that is away or closed; empty: it is neither."""
    cluster = facts.cluster
    node = None if cluster is None else cluster.node_of(holder.id)
    if cluster is None or node is None or node.state not in ("away", "closed"):
        return []
    if node.state == "closed":
        return [f"Node {node.name} is closed: its work is taken back now, and it runs again if its policy allows."]
    leader = f"manager {cluster.placement}, which leads placement," if cluster.placement else "the placement leader"
    text = (
        f"Node {node.name} keeps it while it is away. If the node is silent for {duration_text(cluster.closed_s)} and "
        f"does not answer, {leader} closes it and the job is taken back; it runs again if its policy allows."
    )
    return [text]


def closing(attempt: Attempt, name: str, facts: Facts) -> str:
    """Why the node of an attempt was closed when the attempt was lost, as a sentence; empty: it was not."""
    if facts.cluster is None or attempt.ended_ms is None or attempt.by == attempt.session:
        return ""
    node = facts.cluster.node_of(attempt.session)
    name = name if node is None else node.name
    near = range(attempt.ended_ms - _BEFORE_MS, attempt.ended_ms + _AFTER_MS)
    found = [each for each in facts.cluster.closings if each.node == name and each.at_ms in near]
    if not found:
        return ""
    ended = min(found, key=lambda each: abs(each.at_ms - (attempt.ended_ms or 0)))
    reasons = {
        "silence": f"was closed after {duration_text(round(ended.seconds or facts.cluster.closed_s))} of silence",
        "proven": "ended, as its parent process reported",
        "replaced": "was started again",
    }
    return f" Node {name} {reasons.get(ended.cause, 'was closed')}, so its work was taken back."


__all__ = ["closing", "heard", "while_away"]
