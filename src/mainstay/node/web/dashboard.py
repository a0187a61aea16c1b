"""The dashboard of node jobs: the grid of nodes on the page of a job, and the page of all nodes."""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from ...errors import MainstayError
from ...model import Job
from ...web.dashboard import PageView, Panel
from ..advice import RETRYABLE
from ..queries import PHASES, MemberStatus, read_nodes
from .masks import shown_node_job

#: shortest time between two updates of a job that runs, whose row does not change when a node goes on; and its multiple
#: of the time that an update takes
_POLL_S, _SHARE = 2, 20
#: from this number of nodes on, a cell shows only the sign and the name
_DENSE = 60


class PhaseStyle(NamedTuple):
    """How a phase is shown: the kind of its colour, and its sign."""

    kind: str
    sign: str


LOOKS = {
    "lost": PhaseStyle("bad", "!"),
    "failed": PhaseStyle("bad", "✕"),
    "running": PhaseStyle("busy", "▸"),
    "assigned": PhaseStyle("wait", "◌"),
    "waiting": PhaseStyle("wait", "○"),
    "cancelled": PhaseStyle("off", "–"),
    "succeeded": PhaseStyle("good", "✓"),
    "not begun": PhaseStyle("wait", "○"),
    "none": PhaseStyle("off", "–"),
}


class NodeCell(msgspec.Struct, frozen=True, kw_only=True):
    """One node in the grid."""

    member: MemberStatus
    look: PhaseStyle
    label: str
    """all that the cell shows, for a screen reader and as its title"""
    percent: int | None = None


def cell_of(member: MemberStatus) -> NodeCell:
    """The cell of a node."""
    progress = member.progress
    percent = None
    if progress is not None and progress.total and member.phase == "running":
        percent = max(0, min(100, int(100 * progress.done / progress.total)))
    parts = [f"{member.node}: {member.phase}"]
    if member.status == "timed_out":
        parts.append("timed out")
    if percent is not None:
        parts.append(f"{percent}%")
    if progress is not None and progress.message and member.phase == "running":
        parts.append(progress.message)
    if member.error is not None and member.phase == "failed":
        parts.append(f"{member.error.type}: {member.error.message}")
    if member.waits:
        parts.append(member.waits)
    return NodeCell(member=member, look=LOOKS[member.phase], label=", ".join(parts), percent=percent)


async def nodes_panel(view: PageView, job: Job) -> Panel:
    """The nodes of a job by phase, its quorum and its leader phase."""
    began_s = time.monotonic()
    try:
        shown = await shown_node_job(view.served.store, job, view.masker)
    except MainstayError as error:
        return Panel(template="node/nodes_panel.html", data={"error": str(error), "job": None})
    members = sorted(shown.members, key=lambda member: (PHASES.index(member.phase), member.node))
    data = {
        "error": "",
        "job": shown,
        "cells": [cell_of(member) for member in members],
        "dense": len(members) >= _DENSE,
        "looks": LOOKS,
        "retries": job.status in ("running", *RETRYABLE),
        "failed": [member for member in members if member.status in RETRYABLE],
    }
    # the longer an update takes, the rarer it is
    poll_s = 0 if shown.settled else max(_POLL_S, round((time.monotonic() - began_s) * _SHARE))
    return Panel(template="node/nodes_panel.html", data=data, poll_s=poll_s)


async def nodes_page(view: PageView) -> Response:
    """All nodes of the store."""
    return view.page("node/nodes.html", title="Nodes", found=await read_nodes(view.served.store))


PAGES = {"/nodes": nodes_page}
PANELS = (nodes_panel,)

__all__ = ["LOOKS", "PAGES", "PANELS", "NodeCell", "PhaseStyle", "cell_of", "nodes_page", "nodes_panel"]
