"""Health checks for service managers. They need no token, so they reveal only names and times."""

from __future__ import annotations

import time

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..services import WebServices

#: a store whose last call failed is not ready after this time. The hub reads every 5 s at least and waits as long, so
#: the failure is known by then
_MISSED_S = 10.0


def routes(site: WebServices) -> list[BaseRoute]:
    """`/livez`: this process responds. `/readyz`: every store has answered recently as well."""

    async def livez(_: Request) -> Response:
        return _json({"live": True}, 200)

    async def readyz(_: Request) -> Response:
        now_s, ready_s = time.monotonic(), site.options.ready_s
        stores = {}
        for name, served in site.stores.by_name.items():
            age_s = now_s - served.answered_s
            limit_s = min(ready_s, _MISSED_S) if served.error else ready_s
            stores[name] = {"ready": age_s <= limit_s, "answered_s_ago": round(age_s, 1)}
        waits_for = [name for name, store in stores.items() if not store["ready"]]
        headers = {"Retry-After": "2"} if waits_for else {}
        body = {"ready": not waits_for, "waits_for": waits_for, "stores": stores}
        return _json(body, 503 if waits_for else 200, headers)

    return [Route("/livez", livez), Route("/readyz", readyz)]


def _json(body: object, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")
