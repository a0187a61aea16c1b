"""The operator's side of batches on the stores of a server."""

from __future__ import annotations

from typing import Any

from ...web.api.operation import ApiRequest
from ...web.stores import ServedStore
from ..service import Desk


def desk_at(place: ServedStore) -> Desk:
    """The one of a store, which keeps the stores of outputs open."""
    return place.kept(Desk)


def desk_of(ask: ApiRequest[Any, Any]) -> Desk:
    """One whose changes are made in the caller's name."""
    return Desk(ask.control, places=desk_at(ask.served).places)


__all__ = ["desk_at", "desk_of"]
