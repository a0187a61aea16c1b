"""What managers answer, as the facts that explain a job."""

from __future__ import annotations

from collections.abc import Iterable

from ..control.explain import ClusterFacts, NodeEvent, NodeFact
from .status import ClusterStatus, JournalEntry


def cluster_facts(status: ClusterStatus, journal: Iterable[JournalEntry]) -> ClusterFacts:
    """The facts of a status and of the journal around the time of a job."""
    return ClusterFacts(
        at_ms=status.at_ms,
        nodes=tuple(
            NodeFact(
                name=node.name,
                state=node.state,
                host=node.beat.host,
                since_ms=node.since_ms,
                heard_ms=node.heard_ms,
                sessions=node.beat.sessions,
                reason=node.reason,
            )
            for node in status.nodes
        ),
        placement=next((lead.manager for lead in status.leads if lead.name == "placement"), ""),
        closings=tuple(
            NodeEvent(at_ms=entry.at_ms, node=entry.about, cause=entry.cause, seconds=entry.seconds, text=entry.text)
            for entry in sorted(journal, key=lambda entry: entry.at_ms)
            if entry.event == "node_closed"
        ),
        away_s=status.away_s,
        closed_s=status.closed_s,
    )


__all__ = ["cluster_facts"]
