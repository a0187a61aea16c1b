"""The answer to a submit, and how its errors name the requests."""

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
    """The job that stands for a request; `created` is False if it had been stored before."""

    id: str
    created: bool
    durability: str = ""
    """what the answer survives, in words: the requested level, and the level that the store is configured for"""
    by: Literal["", "key", "unique"] = ""
    """which key led to the earlier job: the idempotency key (that job may be deleted since), or the unique key"""


def in_requests(error: Conflict | InvalidInput, many: int) -> Conflict | InvalidInput:
    """The error of a store, which names jobs by their index, with the names that the submitter knows."""
    first = error.field if isinstance(error, InvalidInput) else str(error)
    index = _INDEXED.match(first)
    if index is None:
        return error
    rest = first[index.end() :]
    message = rest if many == 1 else f"requests[{index[1]}]{index[2]}{rest}"
    if isinstance(error, InvalidInput):
        error.field, message = message, f"{message}: {error.rule}"
    error.args = (message,)
    return error


__all__ = ["MayReplace", "Submitted", "in_requests"]
