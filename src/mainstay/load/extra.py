"""The extra `mainstay[load]`, which may be missing."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator

from ..errors import MissingExtra

#: top-level packages that `mainstay[load]` brings
PACKAGES = frozenset({"h2", "hpack", "httptools", "hyperframe", "numpy", "uvloop", "websockets"})


def extra_installed() -> bool:
    """Whether this machine can run load tests; imports nothing of the extra."""
    return all(importlib.util.find_spec(name) is not None for name in ("h2", "httptools", "numpy"))


@contextlib.contextmanager
def extra_needed(what: str) -> Iterator[None]:
    """Wrap imports of the extra; raises `MissingExtra`. `what` begins the message: "HTTP/2"."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in PACKAGES:
            raise
        raise MissingExtra(
            "load", f"{what} needs {name}, which is not installed; run: pip install 'mainstay[load]'"
        ) from None
