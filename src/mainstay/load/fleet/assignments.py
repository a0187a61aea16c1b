"""Which machine runs each slice, as a port: the leader of a fleet asks it, and placement decides."""

from __future__ import annotations

from typing import Protocol

from .messages import SliceEnd
from .settings import FleetMember


class SliceAssignments(Protocol):
    """Which machine runs each slice, as the store says.

    No two machines run one slice at the same time: a slice gets a new assignment only when its former machine is proven
    dead, has given it back, or was silent for 25 s. Without contact to its leader, a slice stops its load after 20 s.

    `after` and `over` raise `GeneratorLost` for a slice that will never be assigned again: it was refused or lost too
    often, or the job was cancelled."""

    async def after(self, number: int, token: int) -> FleetMember:
        """Wait for the assignment of a slice, confirmed by its node, with a token above this one. Returns at once if
        the slice has one."""
        ...

    async def over(self, number: int, token: int) -> str:
        """Wait until this assignment is over: its node was lost, gave it back or ended it. Returns the reason. Until
        then, the leader may speak to the slice."""
        ...

    async def give_up(self, number: int, token: int, why: str) -> None:
        """Take the slice away from its node, as a loss: the leader knows that its load has ended or, because it had no
        contact for 25 s, must have ended. It is assigned again. Nothing happens if this assignment is over."""
        ...

    async def end_of(self, number: int, token: int) -> SliceEnd | None:
        """What the node of a slice has stored of the last load of this assignment; None: nothing, or it cannot be
        read. It has not been checked."""
        ...

    def waiting(self, number: int) -> str:
        """What a slice that has no assignment waits for, in words: "waits for 4 free cores"."""
        ...


__all__ = ["SliceAssignments"]
