"""Style, script and pictures of the dashboard: read once, sent compressed, kept by browsers until they change."""

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

from ...kinds import kinds
from ..problems import Problem, answer

_SENT = (".css", ".js", ".svg")
_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "public, max-age=60"


class Asset(NamedTuple):
    """One file."""

    body: bytes
    packed: bytes
    media: str
    mark: str
    """changes with its content"""


@cache
def assets() -> dict[str, Asset]:
    """By path below `/static/`.

    >>> sorted(name for name in assets() if "/" not in name)
    ['dashboard.css', 'dashboard.js', 'icon.svg', 'login.css']
    """
    found = {path: _asset(path, file.read_bytes()) for path, file in _walk(files(__package__) / "static", "")}
    for kind in kinds():
        for path, place in kind.assets.items():
            package, _, name = place.partition(":")
            found.setdefault(path, _asset(name, (files(package) / name).read_bytes()))
    # the sign-in page is looked at without being let in, and so are these; it has no style of its own
    found["login.css"] = found["dashboard.css"]
    return found


def asset_url(path: str) -> str:
    """Where a file is, under a name that changes with its content."""
    return f"/static/{path}?v={assets()[path].mark}"


def routes() -> list[BaseRoute]:
    """Everything below `/static/`. Nobody has to be let in for it."""
    return [Route("/static/{path:path}", _send, methods=["GET"], include_in_schema=False)]


async def _send(request: Request) -> Response:
    asset = assets().get(request.path_params["path"])
    if asset is None:
        return answer(Problem(404, "not_found", "there is no such file"))
    headers = {
        "ETag": f'"{asset.mark}"',
        "Vary": "Accept-Encoding",
        "Cache-Control": _FOR_EVER if request.query_params.get("v") == asset.mark else _ASK_AGAIN,
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
