"""What becomes of a job that was left to its units when the last of them ends, and nobody has moved it on."""

from __future__ import annotations

from ...lifecycle import Move
from ...model import ErrorInfo

ABANDONED = Move(
    to="failed",
    reason="its driver ended without a word about it",
    fields={
        "error": ErrorInfo(
            type="DriverLost",
            code="driver_lost",
            message="the unit that was to go on with it ended without a word about it; its own history tells why",
            retryable=False,
        )
    },
    unheld=True,
)
