"""The routes of the dashboard."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import BaseRoute

from ...kinds import part, server_parts
from ..problems import Problem
from ..services import WebServices
from . import assets
from .job import job
from .jobs import bulk_preview, jobs
from .overview import overview
from .page import Handler, PageView, page_route
from .system_pages import queues, schedules, workers


def routes(site: WebServices) -> list[BaseRoute]:
    """All pages of the dashboard, and its static files."""
    pages: dict[str, Handler] = {
        "/": overview,
        "/jobs": jobs,
        "/jobs/bulk": bulk_preview,
        "/jobs/{id}": job,
        "/queues": queues,
        "/workers": workers,
        "/schedules": schedules,
    }
    for parts in server_parts():
        for path, page in part(parts.pages).items() if parts.pages else ():
            pages.setdefault(path, page)
    pages["/{anything:path}"] = not_found
    return [*assets.routes(), *(page_route(site, path, page) for path, page in pages.items())]


async def not_found(view: PageView) -> Response:
    raise Problem(404, "not_found", f"there is no page {view.request.scope['path'][:200]}; use the links at the top")


__all__ = ["routes"]
