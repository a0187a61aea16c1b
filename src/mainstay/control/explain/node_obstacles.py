"""Why a job waits in a cluster: the nodes that would take it are away or drain, or no known manager places work."""

from __future__ import annotations

from ...model import Job, Session
from ...words import span
from .cluster_facts import ClusterFacts, NodeFact
from .facts import Advice, Facts, Obstacle, is_alive

#: nodes that are named; the rest is counted
_NAMED = 5


def awaited_nodes(job: Job, facts: Facts) -> list[Obstacle]:
    """The nodes that would take a job if they were active; empty: another session takes it, or no node would."""
    cluster = facts.cluster
    if cluster is None:
        return []
    idle: dict[str, NodeFact] = {}
    for session in facts.sessions:
        if session.dead or session.serves(job.queue) is False or session.knows(job.kind, job.name) is False:
            continue
        node = cluster.node_of(session.id)
        if _takes_work(session, node, facts):
            return []
        if node is not None and node.state != "closed":
            idle[node.name] = node
    if not idle:
        return []
    named = ", ".join(_described(node, cluster) for node in list(idle.values())[:_NAMED])
    more = f" and {len(idle) - _NAMED} more" if len(idle) > _NAMED else ""
    what = job.name if job.kind == "task" else f"{job.kind} {job.name}"
    text = f"No active node offers {what} of queue {job.queue}. Nodes that do: {named}{more}."
    advice = (
        Advice(why="see the nodes", command="mainstay cluster nodes"),
        Advice(why="start another node with this program", command="mainstay node join URL MODULE:APP"),
    )
    return [Obstacle(text=text, advice=advice)]


def unknown_leader(facts: Facts) -> list[Obstacle]:
    """Placed work waits while the lead is held by a session that no manager has."""
    cluster = facts.cluster
    if cluster is None or cluster.placement:
        return []
    text = "No manager leads placement now, so nothing is assigned. Another manager takes over within seconds."
    return [Obstacle(text=text, advice=(Advice(why="see the leaders", command="mainstay cluster leaders"),))]


def _takes_work(session: Session, node: NodeFact | None, facts: Facts) -> bool:
    if node is not None and node.state != "active":
        return False
    return is_alive(session, facts.lease_ms) and not session.is_draining


def _described(node: NodeFact, cluster: ClusterFacts) -> str:
    if node.state == "active":  # only this session drains
        return f"{node.name} (draining)"
    since = span(cluster.at_ms - node.since_ms)
    why = f": {node.reason}" if node.reason else ""
    return f"{node.name} ({node.state} for {since}{why})"


__all__ = ["awaited_nodes", "unknown_leader"]
