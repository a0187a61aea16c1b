"""What all pages share: the view of a request, rendering, and error pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ...kinds import kind_named, server_parts
from ...report import template_environment
from ...words import ago, clock, iso, short_session, span
from ..api.masker import Masker
from ..api.routes import as_problem
from ..caller import Caller
from ..live.hub import LiveHub
from ..live.snapshot import Snapshot
from ..live.sse import HEARTBEAT_S
from ..problems import Problem
from ..security.login import CSRF_FIELD, sign_in_url
from ..services import WebServices
from ..stores import ServedStore
from . import words
from .assets import asset_url, assets

#: the pages beside those of kinds: path, name, key
NAV = (
    ("/", "Overview", "o"),
    ("/jobs", "Jobs", "b"),
    ("/queues", "Queues", "u"),
    ("/workers", "Workers", "w"),
    ("/schedules", "Schedules", "s"),
)
_THEMES = ("light", "dark")


class PageView:
    """A request for a page: its caller, its store, and the rendering of the page."""

    def __init__(self, site: WebServices, request: Request, caller: Caller, served: ServedStore) -> None:
        self.site = site
        self.request = request
        self.caller = caller
        self.served = served
        self.now_ms = served.store.clock.now_ms()

    @property
    def snapshot(self) -> Snapshot:
        """The last snapshot of the store."""
        hub: LiveHub = self.site.hub
        return hub.snapshot(self.served.name)

    @property
    def masker(self) -> Masker:
        return self.site.masker

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def given(self) -> dict[str, Any]:
        """The query of the URL: name -> values, without blank ones."""
        found: dict[str, Any] = {}
        for name, value in self.request.query_params.multi_items():
            if value.strip() and name != "store":
                found.setdefault(name, []).append(value.strip())
        return found

    def url(self, path: str, given: Mapping[str, Any] | None = None, /, **more: Any) -> str:
        """A link to a page of the same store. Values that are None or empty are left out."""
        pairs: list[tuple[str, str]] = []
        if self.served is not self.site.stores.first:
            pairs.append(("store", self.served.name))
        for name, value in {**(given or {}), **more}.items():
            values = value if isinstance(value, list | tuple) else [value]
            pairs += [(name, str(each)) for each in values if each not in (None, "")]
        return f"{path}?{urlencode(pairs)}" if pairs else path

    def may(self, scope: Any) -> bool:
        """Whether the caller may use a button."""
        return self.caller.may(scope) and not self.site.options.read_only

    def page(self, template: str, *, status: int = 200, **data: Any) -> Response:
        """Render a template."""
        return HTMLResponse(_environment().get_template(template).render(**self._shared(), **data), status)

    def _shared(self) -> dict[str, Any]:
        request, site = self.request, self.site
        theme = request.cookies.get("mainstay-theme", "")
        here = quote(request.scope["path"])
        query = request.scope.get("query_string", b"").decode("latin-1")
        return {
            "view": self,
            "url": self.url,
            "may": self.may,
            "now_ms": self.now_ms,
            "nav": navigation(has_cluster=site.cluster is not None),
            "at": request.scope["path"],
            "here": f"{here}?{query}" if query else here,
            "theme": theme if theme in _THEMES else "",
            "stores": list(site.stores.by_name),
            "store": self.served.name,
            "store_url": self.served.url,
            "snap": self.snapshot,
            "csrf": site.guard.csrf_token(request),
            "csrf_field": CSRF_FIELD,
            "signed_in": site.guard.session(request) is not None,
            "who": self.caller,
            "read_only": site.options.read_only,
            "heartbeat_s": HEARTBEAT_S,
        }


Handler = Callable[[PageView], Awaitable[Response]]


def page_route(site: WebServices, path: str, handler: Handler) -> Route:
    """The route of a page. Callers who are not signed in are sent to the sign-in page; other errors are pages."""

    async def endpoint(request: Request) -> Response:
        try:
            caller = await site.guard.admit(request, "read")
            served = site.stores.find(request.query_params.get("store") or None)
            view = PageView(site, request, caller, served)
        except Exception as error:  # noqa: BLE001 - every error becomes a response
            return _refused_outside(request, as_problem(error, request))
        try:
            return await handler(view)
        except Exception as error:  # noqa: BLE001 - the same
            return refused(view, as_problem(error, request))

    return Route(path, endpoint, methods=["GET"], include_in_schema=False)


def refused(view: PageView, problem: Problem) -> Response:
    """The page of an error."""
    title = {404: "Not found", 503: "Service unavailable"}.get(problem.status, "Refused")
    page = view.page("error.html", status=problem.status, problem=problem, title=title)
    page.headers.update(problem.headers)
    return page


def _refused_outside(request: Request, problem: Problem) -> Response:
    """The response to a caller who was not admitted: a page without anything of the site."""
    if problem.status == 401:
        if request.headers.get("hx-request"):
            return Response(status_code=401, headers={"HX-Redirect": sign_in_url(request)})
        return RedirectResponse(sign_in_url(request), 303)
    text = _environment().get_template("refused.html").render(problem=problem)
    return HTMLResponse(text, problem.status, dict(problem.headers))


@cache
def navigation(*, has_cluster: bool) -> tuple[tuple[str, str, str], ...]:
    """The links at the top: path, name, key. Those of kinds come last."""
    shown = [parts for parts in server_parts() if has_cluster or parts.needs != "cluster"]
    return (*NAV, *((each.path, each.title, each.key) for parts in shown for each in parts.navigation))


@cache
def _environment() -> jinja2.Environment:
    found = template_environment(
        __package__, prefixes={parts.name: parts.templates for parts in server_parts() if parts.templates}
    )
    found.filters.update(
        clock=clock,
        iso=iso,
        span=lambda seconds: span(seconds * 1000),
        n=lambda value: f"{value:,}",
        json=lambda value: msgspec.json.encode(value).decode(),
        actor=short_session,
        part=lambda text: quote(text, safe=""),
    )
    found.globals.update(kind_named=kind_named, asset=asset_url, ago=ago, look_of=words.look_of, lasted=words.lasted)
    return found


def compiled() -> None:
    """Compile all templates and compress the static files in advance: that takes longer than any page."""
    assets()
    found = _environment()
    for name in found.list_templates(["html"]):
        found.get_template(name)


__all__ = ["NAV", "Handler", "PageView", "compiled", "navigation", "page_route", "refused"]
