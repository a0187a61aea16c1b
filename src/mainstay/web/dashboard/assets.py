"""Static files of the dashboard: read once, sent compressed, cached by browsers until they change."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...kinds import server_parts
from ..problems import Problem, problem_response

_SENT = (".css", ".js", ".svg")
_IMMUTABLE = "public, max-age=31536000, immutable"
_SHORT = "public, max-age=60"


class Asset(NamedTuple):
    """One static file."""

    body: bytes
    packed: bytes
    media: str
    mark: str
    """changes with its content"""


@cache
def assets() -> dict[str, Asset]:
    """The files by path below `/static/`.

    >>> sorted(name for name in assets() if "/" not in name)
    ['dashboard.css', 'dashboard.js', 'icon.svg', 'login.css']
    """
    found = {path: _asset(path, file.read_bytes()) for path, file in _walk(files(__package__) / "static", "")}
    for parts in server_parts():
        for path, resource in parts.assets.items():
            package, _, name = resource.partition(":")
            found.setdefault(path, _asset(name, (files(package) / name).read_bytes()))
    # the sign-in page uses the same style
    found["login.css"] = found["dashboard.css"]
    return found


def asset_url(path: str) -> str:
    """The URL of a file, which changes with its content."""
    return f"/static/{path}?v={assets()[path].mark}"


def routes() -> list[BaseRoute]:
    """Everything below `/static/`; it needs no token."""
    return [Route("/static/{path:path}", _send, methods=["GET"], include_in_schema=False)]


async def _send(request: Request) -> Response:
    asset = assets().get(request.path_params["path"])
    if asset is None:
        return problem_response(Problem(404, "not_found", "there is no such file"))
    headers = {
        "ETag": f'"{asset.mark}"',
        "Vary": "Accept-Encoding",
        "Cache-Control": _IMMUTABLE if request.query_params.get("v") == asset.mark else _SHORT,
    }
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=asset.media)
    return Response(asset.body, headers=headers, media_type=asset.media)


def _asset(path: str, body: bytes) -> Asset:
    media = mimetypes.guess_type(path)[0] or "application/octet-stream"
    return Asset(body, gzip.compress(body, mtime=0), media, hashlib.sha256(body).hexdigest()[:12])


def _walk(folder: Traversable, below: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{below}{entry.name}/")
        elif entry.name.endswith(_SENT):
            found.append((below + entry.name, entry))
    return found


__all__ = ["Asset", "asset_url", "assets", "routes"]
