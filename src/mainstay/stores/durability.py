"""Durability levels: how safe a job is when its submit returns.

A store that cannot give the requested level refuses it before anything is written. Without a request, the URL of the
store decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, cast, get_args

from ..errors import InvalidInput

#: from the weakest to the strongest: on the disk of the server; also on the disks of its synchronous replicas; also
#: visible to readers there
Durability = Literal["local", "replicated", "applied"]
LEVELS: tuple[Durability, ...] = get_args(Durability)


def check_durability(value: Any, *, field: str = "durability") -> Durability:
    """Refuse a value that is not a level.

    >>> check_durability("replicated")
    'replicated'
    >>> check_durability("remote")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: durability: 'remote' is not one of local, replicated, applied
    """
    if value not in LEVELS:
        raise InvalidInput(field, f"{value!r} is not one of {', '.join(LEVELS)}")
    return cast("Durability", value)


def strongest(levels: Iterable[Durability | None]) -> Durability | None:
    """The level that satisfies every request of one commit; None if there is no request.

    >>> strongest(["local", None, "applied"])
    'applied'
    """
    return max((level for level in levels if level is not None), key=LEVELS.index, default=None)


def refused(level: Durability, why: str, *, can: Iterable[Durability] = ()) -> InvalidInput:
    """The refusal of a store that cannot give a level, and why."""
    given = ", ".join(can)
    advice = f"it can give {given}" if given else "leave the durability out, or use another store"
    return InvalidInput("durability", f"{level!r} cannot be given here: {why}; {advice}")


__all__ = ["LEVELS", "Durability", "check_durability", "refused", "strongest"]
