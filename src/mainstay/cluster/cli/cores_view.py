"""The cores of a cluster on the terminal: which runs hold those of a node, and which runs wait."""

from __future__ import annotations

from rich.console import Console, RenderableType

from ...cli import Column, table
from ...control import CoreWaiter
from ...words import counted, span
from ..core_view import ClusterCores, ClusterNodeCores

#: runs that are named in the line of a node, and runs that wait; the rest is counted
_NAMED, _WAITING = 3, 10
#: of the end of an id, which tells jobs apart
_SHORT = 8


class CoreColumns:
    """The cells about cores in the table of nodes. Without an answer about cores they are empty."""

    def __init__(self, cores: ClusterCores | None) -> None:
        self._nodes = {} if cores is None else {node.node: node for node in cores.nodes}
        self._names = {} if cores is None else {run.job: run.name for run in cores.runs}

    def held(self, node: str, cores: int) -> str:
        """Cores that runs hold, of all: "3/4"."""
        found = self._nodes.get(node)
        return str(cores) if found is None else f"{found.used}/{found.cores}"

    def runs(self, node: str) -> str:
        """The runs on a node: "shop …9d1f0c22 3"."""
        found = self._nodes.get(node)
        return "" if found is None else self._listed(found)

    def _listed(self, node: ClusterNodeCores) -> str:
        held: dict[str, int] = {}
        for share in node.shares:
            held[share.job] = held.get(share.job, 0) + share.cores
        parts = [f"{self._names.get(job, '')} …{job[-_SHORT:]} {n}" for job, n in list(held.items())[:_NAMED]]
        more = [f"{len(held) - _NAMED} more"] if len(held) > _NAMED else []
        return ", ".join([*parts, *more])


def cores_line(cores: ClusterCores | None) -> str | None:
    """All cores in a line; None: they are not known."""
    if cores is None:
        return None
    waiting = sum(not each.part for each in cores.waiting)
    runs = f"; {counted(len(cores.runs), 'run')}, {waiting} waiting" if cores.runs or waiting else ""
    return f"{cores.used} of {cores.total} held by runs, {cores.free} free{runs}"


def waiting_parts(cores: ClusterCores | None, console: Console) -> list[RenderableType]:
    """The table of runs that wait; empty: none does."""
    if cores is None or not cores.waiting:
        return []
    columns: list[Column[CoreWaiter]] = [
        Column("place", lambda each: f"{each.place} of {each.of}" if each.place else "", right=True),
        Column("waits", lambda each: f"{each.name} {each.part}".strip()),
        Column("job", lambda each: f"…{each.job[-_SHORT:]}"),
        Column("since", lambda each: span(cores.at_ms - each.since_ms) if each.since_ms else "", right=True),
        Column("for", lambda each: each.reason),
    ]
    parts: list[RenderableType] = ["", table(columns, cores.waiting[:_WAITING], screen_width=console.width)]
    if len(cores.waiting) > _WAITING:
        parts.append(f"and {len(cores.waiting) - _WAITING} more wait")
    return parts


__all__ = ["CoreColumns", "cores_line", "waiting_parts"]
