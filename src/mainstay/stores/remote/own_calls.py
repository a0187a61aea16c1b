"""The arguments of the calls that are not of the port: bodies in parts, and wakes that a manager holds."""

from __future__ import annotations

import msgspec


class NoArguments(msgspec.Struct, frozen=True):
    """Of `hello`."""


class PutPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the arguments of a later call."""

    call: str
    number: int
    of: int
    data: bytes


class GetPart(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for a part of an answer."""

    call: str
    number: int


class OpenWake(msgspec.Struct, frozen=True, kw_only=True):
    """Registers a wake."""

    topics: tuple[str, ...]


class AwaitWake(msgspec.Struct, frozen=True, kw_only=True):
    """Waits for a wake."""

    number: str
    wait_s: float


class CloseWake(msgspec.Struct, frozen=True, kw_only=True):
    """Ends a wake."""

    number: str


__all__ = ["AwaitWake", "CloseWake", "GetPart", "NoArguments", "OpenWake", "PutPart"]
