"""The server as one ASGI app: its routes, middleware and lifespan."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Router
from starlette.types import Receive, Scope, Send

from .api import routes as api
from .cluster_source import ClusterSource
from .dashboard import routes as dashboard
from .dashboard.page import compiled
from .live import routes as live
from .live.request_counts import CountingApp
from .options import WebOptions
from .problems import Problem, problem_response
from .security import login
from .security.tokens import Tokens
from .services import WebServices
from .stores import ServedStores

_CODES = {404: "not_found", 405: "method_not_allowed"}


def make_site(
    stores: ServedStores, options: WebOptions, *, tokens: Tokens | None, cluster: ClusterSource | None = None
) -> Starlette:
    """The server as an app; the caller closes the stores afterwards. Served through `security.middleware.wrapped`.

    >>> import asyncio
    >>> from mainstay.web.stores import ServedStores
    >>> async def main():
    ...     async with await ServedStores.open({"main": "memory:"}) as stores:
    ...         return make_site(stores, WebOptions(), tokens=None).state.site.stores.first.name
    >>> asyncio.run(main())
    'main'
    """
    site = WebServices(stores, options, tokens=tokens, cluster=cluster)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        # before the first request: it would delay requests that run at the same time
        warming = asyncio.create_task(asyncio.to_thread(compiled))
        async with site.hub, cluster or contextlib.nullcontext():
            await warming
            yield

    app = Starlette(
        routes=[
            # some of these are below the prefix of the API, so they come first
            *live.routes(site),
            *login.routes(site),
            Mount(
                api.PREFIX,
                app=Router(api.routes(site, also=live.live_operations()), redirect_slashes=False, default=_not_found),
            ),
            # another version of the API, or none: an error for programs, not a page
            Mount("/api", app=_not_found),
            *dashboard.routes(site),
        ],
        middleware=[Middleware(CountingApp, requests=site.requests)],
        lifespan=lifespan,
        exception_handlers={Problem: _refused, HTTPException: _refused, Exception: _refused},
    )
    # a path with a slash at its end is another path, which does not exist
    app.router.redirect_slashes = False
    app.state.site = site
    return app


async def _refused(request: Request, error: Exception) -> Response:
    """The response to an error that no part of the site has handled."""
    if isinstance(error, HTTPException):
        code = _CODES.get(error.status_code, "refused")
        headers = dict(error.headers or {})
        detail = f"{request.method[:20]} {request.scope['path'][:200]}: {error.detail}"
        return problem_response(Problem(error.status_code, code, detail, headers=headers))
    return problem_response(api.as_problem(error, request))


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    detail = f"there is nothing at {scope['path'][:200]}; see {api.PREFIX}/openapi.json"
    await problem_response(Problem(404, "not_found", detail))(scope, receive, send)
