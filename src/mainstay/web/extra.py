"""Errors that name the extra to install, for the optional packages of the HTTP server and client."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..errors import MissingExtra

#: top-level packages, and the extra that brings each
PACKAGES = {
    "httptools": "web",
    "starlette": "web",
    "uvicorn": "web",
    "httpx": "client",
}


@contextlib.contextmanager
def extra_needed(what: str) -> Iterator[None]:
    """Wraps imports. `what` begins the sentence of the error: "mainstay serve"."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in PACKAGES:
            raise
        extra = PACKAGES[name]
        raise MissingExtra(
            extra, f"{what} needs {name}, which is not installed; run: pip install 'mainstay[{extra}]'"
        ) from None
