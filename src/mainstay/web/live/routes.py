"""Routes of the live streams, metrics and health checks."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from ...kinds import part, server_parts
from ..api.operation import ApiOperation
from ..api.routes import PREFIX, Endpoint
from ..services import WebServices
from . import health, metrics
from .streams import OPERATIONS


def live_operations() -> list[ApiOperation]:
    """The live streams: our own, and those of the installed kinds and the cluster."""
    return [*OPERATIONS, *(each for parts in server_parts() if parts.streams for each in part(parts.streams))]


def routes(site: WebServices) -> list[BaseRoute]:
    """These routes come before those of the API: `/jobs/stream` is not the id of a job."""
    return [
        *(Route(PREFIX + operation.path, Endpoint(site, {"GET": operation})) for operation in live_operations()),
        *metrics.routes(site, site.requests),
        *health.routes(site),
    ]
