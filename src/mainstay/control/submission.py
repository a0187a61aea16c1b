"""Submit: from requests to stored jobs. Everything is checked before anything is written."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from ..errors import Conflict, InvalidInput
from ..model import Job

log = logging.getLogger("mainstay.control")

_INDEXED = re.compile(r"jobs\[(\d+)\](: |\.)")

#: raises if this job may not be cancelled for another one
MayReplace = Callable[[Job], Awaitable[None]]


class Submitted(msgspec.Struct, frozen=True):
    """The job that stands for a request; `created` is False when it was there before."""

    id: str
    created: bool
    durability: str = ""
    """what the answer survives, in words: the level asked for, and what the store is configured to give"""
    by: Literal["", "key", "unique"] = ""
    """what gave the other job back: the idempotency key (that job may be gone since), or the unique key"""


def in_requests(error: Conflict | InvalidInput, many: int) -> Conflict | InvalidInput:
    """A store's refusal, which calls its jobs by their index, in the words of whoever submitted them."""
    first = error.field if isinstance(error, InvalidInput) else str(error)
    found = _INDEXED.match(first)
    if found is None:
        return error
    rest = first[found.end() :]
    said = rest if many == 1 else f"requests[{found[1]}]{found[2]}{rest}"
    if isinstance(error, InvalidInput):
        error.field, said = said, f"{said}: {error.rule}"
    error.args = (said,)
    return error


__all__ = ["MayReplace", "Submitted", "in_requests"]
