"""Storing jobs within a transaction that somebody else has open, on a connection of any kind.

What is to be done is written once, as steps: a generator that asks for one statement after the other and is sent the
rows of each. Whoever has the connection takes the steps, with or without an event loop.
"""

from __future__ import annotations

from collections.abc import Generator
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ..clock import Clock
from ..errors import InvalidInput, StoreError
from ..storage.urls import shown_url

if TYPE_CHECKING:
    from .postgres.enqueue import Enqueue

T = TypeVar("T")


class Statement(NamedTuple):
    """One statement; its arguments are `$1`, `$2` and so on, in this order, each once."""

    sql: str
    args: tuple[Any, ...] = ()


class Clashed(StoreError):
    """A statement met what another transaction had stored in the same moment."""


Rows = list[tuple[Any, ...]]
Steps = Generator[Statement, Rows, T]

#: what has transactions that users have open beside us
_SCHEMES = ("postgresql", "postgres")


def enqueue_into(url: str, *, clock: Clock | None) -> Enqueue:
    """What stores jobs in the store of this URL within a transaction; raises `InvalidInput` if it has none.

    >>> enqueue_into("memory:", clock=None)
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: connection: jobs can be submitted within a transaction ...
    """
    if urlsplit(url).scheme not in _SCHEMES:
        raise InvalidInput(
            "connection",
            "jobs can be submitted within a transaction of yours in a PostgreSQL store only, and this one is "
            f"{shown_url(url)}; submit without the connection",
        )
    # its package needs a driver, which is an extra
    made: Enqueue = import_module(f"{__package__}.postgres.enqueue").Enqueue.into(url, clock=clock)
    return made


__all__ = ["Clashed", "Rows", "Statement", "Steps", "enqueue_into"]
