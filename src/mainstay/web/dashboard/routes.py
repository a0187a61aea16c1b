"""The pages, and where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import BaseRoute

from ...batch.web.dashboard import batch, batches
from ...load.web.dashboard import compare_loads, load, loads
from ..problems import Problem
from . import assets
from .job import job
from .jobs import bulk_preview, jobs
from .overview import overview
from .page import PageView, page_route
from .system_pages import queues, schedules, workers

if TYPE_CHECKING:
    from ..site import Site


def routes(site: Site) -> list[BaseRoute]:
    """All pages of the dashboard, and what they are made of."""
    pages = {
        "/": overview,
        "/jobs": jobs,
        "/jobs/bulk": bulk_preview,
        "/jobs/{id}": job,
        "/queues": queues,
        "/workers": workers,
        "/schedules": schedules,
        "/batches": batches,
        "/batches/{id}": batch,
        "/loads": loads,
        "/loads/compare": compare_loads,
        "/loads/{id}": load,
        "/{anything:path}": nowhere,
    }
    return [*assets.routes(), *(page_route(site, path, page) for path, page in pages.items())]


async def nowhere(view: PageView) -> Response:
    raise Problem(404, "not_found", f"there is no page {view.request.scope['path'][:200]}; use the links at the top")


__all__ = ["routes"]
