"""Slow HTTP handlers as jobs, for Starlette and FastAPI: `AsyncEndpoint`. Needs the extra `mainstay[web]`."""

from __future__ import annotations

from ..extra import extra_needed

with extra_needed("AsyncEndpoint"):
    from .endpoint import AsyncEndpoint

__all__ = ["AsyncEndpoint"]
