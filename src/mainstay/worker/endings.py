"""How an attempt ended, as data: so that it can come from the loop, a thread or another process alike."""

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
    """its own wish for the wait before the next attempt"""


class Misfit(msgspec.Struct, frozen=True, tag=True):
    """Its arguments do not fit the task any more: for a person to look at."""

    error: ErrorInfo


class Crashed(msgspec.Struct, frozen=True, tag=True):
    """It took its process down."""

    error: ErrorInfo


class PutOff(msgspec.Struct, frozen=True, tag=True):
    """It put itself off."""

    wait_s: float
    reason: str | None = None


class NotNeeded(msgspec.Struct, frozen=True, tag=True):
    """It found nothing to do."""

    reason: str


class Halted(msgspec.Struct, frozen=True, tag=True):
    """It stopped because it was asked to."""

    why: str


class Gone(msgspec.Struct, frozen=True, tag=True):
    """It gave its claim away itself: there is nothing to write."""


Ending = Done | Failed | Misfit | Crashed | PutOff | NotNeeded | Halted | Gone
