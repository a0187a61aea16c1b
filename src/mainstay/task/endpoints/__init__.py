"""Slow HTTP handlers as jobs, for Starlette and FastAPI: `AsyncEndpoint`. Needs the extra `mainstay[web]`.

With FastAPI there are two ways. Either add its routes to the app, and their description to the OpenAPI document:

    web.router.routes.extend(endpoint.routes("/reports"))
    description = endpoint.openapi("/reports")      # "paths" and "components", to be merged into web.openapi()

or call it from your own handlers, with models and dependencies as usual:

    @web.post("/reports", status_code=202)
    async def begin(report: Report, request: Request) -> Response:
        return await endpoint.accept(request, report.model_dump())

and the same with `endpoint.status`, `endpoint.result` and `endpoint.cancel` for GET `/reports/{id}`, GET
`/reports/{id}/result` and DELETE `/reports/{id}`.
"""

from __future__ import annotations

from ...web import extra_needed

with extra_needed("AsyncEndpoint"):
    from .endpoint import AsyncEndpoint

__all__ = ["AsyncEndpoint"]
