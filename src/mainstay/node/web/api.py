"""The API of nodes and node jobs."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from ...web.api import ApiOperation, ApiRequest, ApiResponse, NoParameters, Reason, json_response
from ..queries import NodeJobOverview, NodeList, NodeRetryResult, Phase, read_nodes
from ..service import NodeJobService
from .masks import shown_node_job


class MemberQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which nodes of a job to list."""

    phase: list[Phase] | None = None
    """only nodes in these phases"""


class NodeRetryRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason for running a job again on a node."""

    reason: Reason | None = None


async def list_nodes(ask: ApiRequest[NoParameters, None]) -> Response:
    return json_response(msgspec.to_builtins(await read_nodes(ask.served.store)))


async def get_job_nodes(ask: ApiRequest[MemberQuery, None]) -> Response:
    job = await ask.control.jobs.get(ask.path("id"))
    view = await shown_node_job(ask.served.store, job, ask.site.masker)
    if ask.query.phase is not None:
        members = tuple(member for member in view.members if member.phase in ask.query.phase)
        view = msgspec.structs.replace(view, members=members)
    return json_response(msgspec.to_builtins(view, enc_hook=str))


async def retry_job_node(ask: ApiRequest[NoParameters, NodeRetryRequest]) -> Response:
    reason = ask.body.reason or "retried on request"
    nodes = await NodeJobService(ask.control).retry(
        ask.path("id"), [ask.path("name")], actor=ask.caller.actor, reason=reason
    )
    ask.audit_entry.result["nodes"] = nodes
    return json_response({"id": ask.path("id"), "nodes": nodes})


OPERATIONS = (
    ApiOperation(
        method="GET",
        path="/nodes",
        handler=list_nodes,
        scope="read",
        tag="nodes",
        summary="List the nodes, with their labels, state and work",
        about="The node that leads the placement of work is named, with its epoch.",
        answers={200: ApiResponse(description="The nodes of the store.", type=NodeList)},
    ),
    ApiOperation(
        method="GET",
        path="/jobs/{id}/nodes",
        handler=get_job_nodes,
        scope="read",
        tag="nodes",
        summary="Get a node job: its nodes, its leader phase and its quorum",
        about="A result above 32 KiB is left out; read it from the job of the node's unit, whose id is given.",
        query=MemberQuery,
        answers={200: ApiResponse(description="The node job.", type=NodeJobOverview)},
        refusals=(404,),
    ),
    ApiOperation(
        method="POST",
        path="/jobs/{id}/nodes/{name}/retry",
        handler=retry_job_node,
        scope="operate",
        tag="nodes",
        summary="Run a node job again on a node where it failed",
        body=NodeRetryRequest,
        answers={200: ApiResponse(description="The node runs it again.", type=NodeRetryResult)},
        refusals=(404, 409),
    ),
)
