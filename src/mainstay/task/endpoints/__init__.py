"""Slow HTTP handlers as jobs, for Starlette and FastAPI: `AsyncEndpoint`. Needs the extra `mainstay[web]`.

With FastAPI there are two ways. Either its routes are added to the app, and what they offer to its description:

    web.router.routes.extend(endpoint.routes("/reports"))
    offered = endpoint.openapi("/reports")      # "paths" and "components", to be merged into what web.openapi() makes

or handlers of the app's own, with models and dependencies as usual, hand over what they have read:

    @web.post("/reports", status_code=202)
    async def begin(report: Report, request: Request) -> Response:
        return await endpoint.accept(request, report.model_dump())

and the same with `endpoint.status`, `endpoint.result` and `endpoint.cancel` for GET `/reports/{id}`, GET
`/reports/{id}/result` and DELETE `/reports/{id}`.
"""

from __future__ import annotations

from ...web.extra import extra_needed

with extra_needed("AsyncEndpoint"):
    from .endpoint import AsyncEndpoint

__all__ = ["AsyncEndpoint"]
