"""Health, for whoever starts and restarts the server: asked without a token, so nothing is told but names and times."""

from __future__ import annotations

import time

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..services import WebServices

#: one that was asked, and has not answered, has been silent for long enough after this. The hub asks every 5 s at least
#: and waits as long, so it is known by then
_MISSED_S = 10.0


def routes(site: WebServices) -> list[BaseRoute]:
    """`/livez`: this process turns. `/readyz`: and every store has answered lately."""

    async def livez(_: Request) -> Response:
        return _told({"live": True}, 200)

    async def readyz(_: Request) -> Response:
        now_s, ready_s = time.monotonic(), site.options.ready_s
        stores = {}
        for name, served in site.stores.by_name.items():
            age_s = now_s - served.answered_s
            limit_s = min(ready_s, _MISSED_S) if served.error else ready_s
            stores[name] = {"ready": age_s <= limit_s, "answered_s_ago": round(age_s, 1)}
        waits_for = [name for name, seen in stores.items() if not seen["ready"]]
        headers = {"Retry-After": "2"} if waits_for else {}
        body = {"ready": not waits_for, "waits_for": waits_for, "stores": stores}
        return _told(body, 503 if waits_for else 200, headers)

    return [Route("/livez", livez), Route("/readyz", readyz)]


def _told(body: object, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")
