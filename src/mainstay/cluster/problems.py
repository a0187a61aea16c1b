"""What an operator should look at in a cluster."""

from __future__ import annotations

from ..words import counted
from .status import ClusterStatus

#: nodes that are named; the rest is counted
_NAMED = 10
#: of the digest of a bundle that are shown
DIGITS = 12


def problems_of(status: ClusterStatus) -> list[str]:
    """What an operator should look at, as sentences."""
    problems = list(status.alarms)
    if len(status.managers) < 2:
        problems.append("there is one manager only: if it ends, no node can work; run three")
    if not any(lead.name == "placement" for lead in status.leads):
        problems.append("no manager leads placement: nothing is assigned to nodes, and no dead node is closed")
    away = [node.name for node in status.nodes if node.state == "away"]
    if away:
        more = f" and {len(away) - _NAMED} more" if len(away) > _NAMED else ""
        problems.append(f"{counted(len(away), 'node')} away: {', '.join(away[:_NAMED])}{more}")
    problems += _different_code(status)
    if not any(node.state == "active" for node in status.nodes):
        problems.append("no node is active; add one: mainstay node join URL module:app")
    return problems


def _different_code(status: ClusterStatus) -> list[str]:
    """Nodes that run one app with different code."""
    apps: dict[str, dict[str, list[str]]] = {}
    for node in status.nodes:
        if node.state != "closed" and node.beat.digest:
            apps.setdefault(node.beat.target, {}).setdefault(node.beat.digest[:DIGITS], []).append(node.name)
    return [
        f"nodes run different code of {target}: "
        + "; ".join(f"{digest} on {', '.join(names)}" for digest, names in sorted(code.items()))
        + ". Restart those with the old code"
        for target, code in sorted(apps.items())
        if len(code) > 1
    ]


__all__ = ["DIGITS", "problems_of"]
