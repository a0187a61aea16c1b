"""Routes of the live streams, metrics and health checks."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from ..api.routes import PREFIX, Endpoint
from ..services import WebServices
from . import health, metrics
from .streams import OPERATIONS


def routes(site: WebServices) -> list[BaseRoute]:
    """These routes come before those of the API: `/jobs/stream` is not the id of a job."""
    return [
        *(Route(PREFIX + operation.path, Endpoint(site, {"GET": operation})) for operation in OPERATIONS),
        *metrics.routes(site, site.requests),
        *health.routes(site),
    ]
