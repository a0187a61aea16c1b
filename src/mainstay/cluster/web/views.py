"""What the API of the cluster answers, beside the shapes of `cluster.status`; and the watch of a request."""

from __future__ import annotations

import msgspec

from ...errors import MainstayError
from ...web import ClusterSource, Problem
from ...web.api import Masker
from ..core_view import ClusterCores
from ..status import ClusterStatus, JournalEntry, LeadInfo, ManagerInfo, NodeInfo
from .changes import ClusterChange
from .watch import ClusterWatch

_AGAIN_S = "2"


class ClusterNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of the cluster, by name."""

    at_ms: int
    nodes: list[NodeInfo]


class ClusterManagers(msgspec.Struct, frozen=True, kw_only=True):
    """The managers of the cluster, by name."""

    at_ms: int
    managers: list[ManagerInfo]


class ClusterLeaders(msgspec.Struct, frozen=True, kw_only=True):
    """The leads of the cluster, with the managers that hold them."""

    at_ms: int
    leads: list[LeadInfo]


class ClusterJournalPage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of the journals of all managers, oldest first."""

    entries: list[JournalEntry]


class DrainedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that was asked to drain."""

    node: str
    draining: bool = True


def watch_of(source: ClusterSource | None) -> ClusterWatch:
    """The cluster of a server; raises a `Problem` if it has none."""
    if not isinstance(source, ClusterWatch):
        detail = "this server has no cluster; start it with: mainstay serve --cluster URL"
        raise Problem(404, "no_cluster", detail)
    return source


def no_manager(error: Exception) -> Problem:
    """The problem of a cluster whose managers do not answer."""
    return Problem(503, "no_manager", f"no manager answers: {error}", headers={"Retry-After": _AGAIN_S})


async def shown_status(watch: ClusterWatch, masker: Masker) -> ClusterStatus:
    """The cluster as a caller may see it; raises a `Problem` if no manager answers."""
    try:
        status = await watch.fresh()
    except MainstayError as error:
        raise no_manager(error) from None
    return masked_status(status, masker)


def masked_status(status: ClusterStatus, masker: Masker) -> ClusterStatus:
    """The same with secret values of labels masked."""
    if not any(node.beat.labels for node in status.nodes):
        return status
    return msgspec.structs.replace(status, nodes=[_masked(node, masker) for node in status.nodes])


def masked_change(change: ClusterChange, masker: Masker) -> ClusterChange:
    """The same for what changed."""
    return msgspec.structs.replace(change, nodes=[_masked(node, masker) for node in change.nodes])


async def shown_cores(watch: ClusterWatch, masker: Masker) -> ClusterCores:
    """The cores as a caller may see them; raises a `Problem` if no manager answers."""
    await shown_status(watch, masker)
    if watch.cores is None:
        raise no_manager(MainstayError("it has not read the cores of its nodes in time"))
    return masked_cores(watch.cores, masker)


def masked_cores(cores: ClusterCores, masker: Masker) -> ClusterCores:
    """The same with secret values of labels masked, and secrets in reasons."""
    replace = msgspec.structs.replace
    nodes = [replace(node, labels=masker.mask(dict(node.labels))) if node.labels else node for node in cores.nodes]
    waiting = [replace(each, reason=masker.text(each.reason)) for each in cores.waiting]
    return replace(cores, nodes=tuple(nodes), waiting=tuple(waiting))


def _masked(node: NodeInfo, masker: Masker) -> NodeInfo:
    labels = masker.mask(dict(node.beat.labels))
    return msgspec.structs.replace(node, beat=msgspec.structs.replace(node.beat, labels=labels))


__all__ = [
    "ClusterJournalPage",
    "ClusterLeaders",
    "ClusterManagers",
    "ClusterNodes",
    "DrainedNode",
    "masked_change",
    "masked_cores",
    "masked_status",
    "no_manager",
    "shown_cores",
    "shown_status",
    "watch_of",
]
