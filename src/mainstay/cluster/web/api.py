"""The API of the cluster."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ...errors import MainstayError
from ...web import Problem
from ...web.api import ApiOperation, ApiRequest, ApiResponse, Millis, NoParameters, json_response
from ..core_view import ClusterCores
from ..status import ClusterStatus, NodeInfo, NodeState
from . import bundles
from .views import (
    ClusterJournalPage,
    ClusterLeaders,
    ClusterManagers,
    ClusterNodes,
    DrainedNode,
    no_manager,
    shown_cores,
    shown_status,
    watch_of,
)

_REFUSALS = (404, 503)
_ABOUT = "404: this server has no cluster. 503: no manager answers; `Retry-After` says when to ask again."


class NodeQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which nodes to list."""

    state: list[NodeState] | None = None
    """only nodes in these states"""


class JournalQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries of the journal: a time range, and of that the newest ones."""

    from_ms: Millis | None = None
    """at or after this time"""
    before_ms: Millis | None = None
    """before this time"""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


async def get_cluster(ask: ApiRequest[NoParameters, None]) -> Response:
    watch = watch_of(ask.site.cluster)
    status = await shown_status(watch, ask.site.masker)
    return json_response(msgspec.structs.replace(status, journal=watch.newest()))


async def list_cluster_nodes(ask: ApiRequest[NodeQuery, None]) -> Response:
    status, states = await _status(ask), ask.query.state
    nodes = [node for node in status.nodes if states is None or node.state in states]
    return json_response(ClusterNodes(at_ms=status.at_ms, nodes=nodes))


async def get_cluster_node(ask: ApiRequest[NoParameters, None]) -> Response:
    status, name = await _status(ask), ask.path("name")
    node = next((node for node in status.nodes if node.name == name), None)
    if node is None:
        raise _no_node(name, status)
    return json_response(node)


async def get_cores(ask: ApiRequest[NoParameters, None]) -> Response:
    return json_response(await shown_cores(watch_of(ask.site.cluster), ask.site.masker))


async def list_managers(ask: ApiRequest[NoParameters, None]) -> Response:
    status = await _status(ask)
    return json_response(ClusterManagers(at_ms=status.at_ms, managers=status.managers))


async def list_leaders(ask: ApiRequest[NoParameters, None]) -> Response:
    status = await _status(ask)
    return json_response(ClusterLeaders(at_ms=status.at_ms, leads=status.leads))


async def list_journal(ask: ApiRequest[JournalQuery, None]) -> Response:
    watch, query = watch_of(ask.site.cluster), ask.query
    try:
        entries = await watch.reader.journal(from_ms=query.from_ms, until_ms=query.before_ms, most=query.limit)
    except MainstayError as error:
        raise no_manager(error) from None
    return json_response(ClusterJournalPage(entries=entries))


async def drain_node(ask: ApiRequest[NoParameters, NoParameters]) -> Response:
    watch, name = watch_of(ask.site.cluster), ask.path("name")
    ask.audit_entry.result["node"] = name
    try:
        drains = await watch.reader.drain(name, by=ask.caller.actor)
    except MainstayError as error:
        raise no_manager(error) from None
    if not drains:
        raise _no_node(name, await _status(ask))
    watch.nudge()
    return json_response(DrainedNode(node=name))


async def _status(ask: ApiRequest[Any, Any]) -> ClusterStatus:
    return await shown_status(watch_of(ask.site.cluster), ask.site.masker)


def _no_node(name: str, status: ClusterStatus) -> Problem:
    open_nodes = [node.name for node in status.nodes if node.state != "closed"]
    known = ", ".join(open_nodes[:20]) + (" ..." if len(open_nodes) > 20 else "") or "none"
    return Problem(404, "node_not_found", f"{name[:100]!r} is not an open node of this cluster (open nodes: {known})")


def _read(path: str, handler: Any, summary: str, answer: Any, **more: Any) -> ApiOperation:
    return ApiOperation(
        method="GET",
        path=f"/cluster{path}",
        handler=handler,
        scope="read",
        tag="cluster",
        summary=summary,
        about=_ABOUT,
        answers={200: ApiResponse(description=answer.__doc__.split("\n")[0], type=answer)},
        refusals=_REFUSALS,
        in_store=False,
        **more,
    )


OPERATIONS = (
    _read("", get_cluster, "Get the cluster: its managers, nodes, leaders, alarms and newest journal", ClusterStatus),
    _read("/nodes", list_cluster_nodes, "List the nodes of the cluster", ClusterNodes, query=NodeQuery),
    _read("/nodes/{name}", get_cluster_node, "Get one node of the cluster", NodeInfo),
    _read("/cores", get_cores, "Get the cores of the nodes: who holds them, and which runs wait", ClusterCores),
    _read("/managers", list_managers, "List the managers of the cluster", ClusterManagers),
    _read("/leaders", list_leaders, "List the leads, with the managers that hold them", ClusterLeaders),
    _read("/journal", list_journal, "Read the journal of the cluster", ClusterJournalPage, query=JournalQuery),
    ApiOperation(
        method="POST",
        path="/cluster/nodes/{name}/drain",
        handler=drain_node,
        scope="operate",
        tag="cluster",
        summary="Drain a node: it finishes what it runs, takes no more work, and ends",
        about=_ABOUT,
        body=NoParameters,
        answers={200: ApiResponse(description="The node was asked to drain.", type=DrainedNode)},
        refusals=_REFUSALS,
        in_store=False,
    ),
    *bundles.OPERATIONS,
)
