"""The move of a job whose driver ended without moving it."""

from __future__ import annotations

from ..model import ErrorInfo
from .machine import Move

ABANDONED = Move(
    to="failed",
    reason="its driver ended without moving it",
    fields={
        "error": ErrorInfo(
            type="DriverLost",
            code="driver_lost",
            message="the unit that drives it ended without moving it; the history of that unit says why",
            retryable=False,
        )
    },
    unheld=True,
)

__all__ = ["ABANDONED"]
