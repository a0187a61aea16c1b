"""The batch services of a server."""

from __future__ import annotations

from typing import Any

from ...web import ServedStore
from ...web.api import ApiRequest
from ..service import BatchService


def service_at(place: ServedStore) -> BatchService:
    """The batch service of a store, which keeps its output stores open."""
    return place.kept(BatchService)


def service_of(ask: ApiRequest[Any, Any]) -> BatchService:
    """A batch service whose changes are made in the caller's name."""
    return BatchService(ask.control, output_stores=service_at(ask.served).output_stores)


__all__ = ["service_at", "service_of"]
