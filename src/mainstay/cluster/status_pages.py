"""The status of a large cluster in several messages: one has room for about a thousand nodes. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from .status import ClusterStatus, NodeInfo

#: of the nodes in one answer; a message may have 1 MiB, and the first one has managers, alarms and the journal, too
PAGE_BYTES = 640 * 1024


class StatusPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a status."""

    status: ClusterStatus
    """with some of the nodes, by name; its beginning has everything else"""
    next_after: str = ""
    """more nodes follow this one; empty: these are the last"""


def status_page(status: ClusterStatus, after: str = "", *, most_bytes: int = PAGE_BYTES) -> StatusPage:
    """The part that follows the node `after`; empty: the beginning."""
    nodes: list[NodeInfo] = []
    size = 0
    left = sorted((node for node in status.nodes if node.name > after), key=lambda node: node.name)
    for node in left:
        size += len(msgspec.msgpack.encode(node))
        if nodes and size > most_bytes:
            break
        nodes.append(node)
    others: dict[str, Any] = {"managers": [], "leads": [], "journal": [], "alarms": [], "refused": {}} if after else {}
    return StatusPage(
        status=msgspec.structs.replace(status, nodes=nodes, **others),
        next_after=nodes[-1].name if len(nodes) < len(left) else "",
    )


__all__ = ["PAGE_BYTES", "StatusPage", "status_page"]
