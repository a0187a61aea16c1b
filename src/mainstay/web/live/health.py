"""Health, for whoever starts and restarts the server: asked without a token, so nothing is told but names and times."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

if TYPE_CHECKING:
    from ..site import Site


def routes(site: Site) -> list[BaseRoute]:
    """`/livez`: this process turns. `/readyz`: and every store has answered lately."""

    async def livez(_: Request) -> Response:
        return _told({"live": True}, 200)

    async def readyz(_: Request) -> Response:
        now_s, limit_s = time.monotonic(), site.options.ready_s
        silent_s = {name: now_s - place.answered_s for name, place in site.shelf.places.items()}
        stores = {
            name: {"ready": age_s <= limit_s, "answered_s_ago": round(age_s, 1)} for name, age_s in silent_s.items()
        }
        waits_for = [name for name, age_s in silent_s.items() if age_s > limit_s]
        headers = {"Retry-After": "2"} if waits_for else {}
        body = {"ready": not waits_for, "waits_for": waits_for, "stores": stores}
        return _told(body, 503 if waits_for else 200, headers)

    return [Route("/livez", livez), Route("/readyz", readyz)]


def _told(body: object, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")
