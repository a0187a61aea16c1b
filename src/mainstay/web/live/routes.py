"""What is live: the streams below the prefix of the API, metrics, and health."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from ..api.routes import PREFIX, Endpoint
from ..services import WebServices
from . import health, metrics
from .streams import OPERATIONS


def routes(site: WebServices) -> list[BaseRoute]:
    """They come before the API's own: `/jobs/stream` is no job."""
    return [
        *(Route(PREFIX + operation.path, Endpoint(site, {"GET": operation})) for operation in OPERATIONS),
        *metrics.routes(site, site.requests),
        *health.routes(site),
    ]
