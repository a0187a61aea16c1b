"""How an attempt ended, as data: it may come from the loop, a thread or another process."""

from __future__ import annotations

import msgspec

from ..control import JobRequest
from ..model import ErrorInfo


class Done(msgspec.Struct, frozen=True, tag=True):
    """It returned."""

    result: msgspec.Raw | None = None
    """as it is stored"""
    followups: tuple[JobRequest, ...] = ()
    """submitted in the same transaction"""


class Failed(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """It raised, or asked to be tried again."""

    error: ErrorInfo
    after_s: float | None = None
    """the wait that it asked for before the next attempt"""


class Misfit(msgspec.Struct, frozen=True, tag=True):
    """Its arguments no longer fit the task: an operator has to look at it."""

    error: ErrorInfo


class Crashed(msgspec.Struct, frozen=True, tag=True):
    """It took its process down."""

    error: ErrorInfo


class PutOff(msgspec.Struct, frozen=True, tag=True):
    """It postponed itself."""

    wait_s: float
    reason: str | None = None


class NotNeeded(msgspec.Struct, frozen=True, tag=True):
    """It found nothing to do."""

    reason: str


class Halted(msgspec.Struct, frozen=True, tag=True):
    """It stopped because it was asked to."""

    why: str


class GivenBack(msgspec.Struct, frozen=True, tag=True):
    """It cannot run here, and may run elsewhere."""

    reason: str


class Overrun(msgspec.Struct, frozen=True, tag=True):
    """It found that its time is over."""

    how: str


class Gone(msgspec.Struct, frozen=True, tag=True):
    """It gave its claim away itself: nothing is written."""


Ending = Done | Failed | Misfit | Crashed | PutOff | NotNeeded | Halted | GivenBack | Overrun | Gone
