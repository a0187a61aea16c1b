"""Transactional enqueue: jobs that are stored by a transaction of the user's own.

- `connections.py` the connections of users: asyncpg, psycopg, SQLAlchemy
- `transaction.py` what is done in their transaction, as steps (`..write.steps`)

Needs no driver of ours, and no open store: the user's connection does all of it. Start from `enqueue_into` and
`user_connection`; the rules are `control`'s, and `task` has what users call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ....clock import Clock
from ....errors import InvalidInput
from ....storage.urls import shown_url
from ..write.steps import Steps
from .connections import AsyncUserConnection, SyncUserConnection, user_connection

if TYPE_CHECKING:
    from .transaction import TransactionalEnqueue

_SCHEMES = ("postgresql", "postgres")


def enqueue_into(url: str, *, clock: Clock | None) -> TransactionalEnqueue:
    """The way into the store of this URL from a transaction; raises `InvalidInput` if the store has none.

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
    # here, so that a program that never enqueues need not load the schema
    from .transaction import TransactionalEnqueue  # noqa: PLC0415 - see above

    return TransactionalEnqueue.into(url, clock=clock)


__all__ = ["AsyncUserConnection", "Steps", "SyncUserConnection", "enqueue_into", "user_connection"]
