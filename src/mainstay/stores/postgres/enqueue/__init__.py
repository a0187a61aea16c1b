"""Transactional enqueue: jobs that are stored by a transaction of the user's own.

- `connections.py`: the connections of users: asyncpg, psycopg, SQLAlchemy
- `transaction.py`: the statements in their transaction, as steps (`..write.steps`)

Needs no driver of ours and no open store: everything runs on the user's connection. Start from `enqueue_into` and
`user_connection`. The rules are in `control`, and the functions for users in `task`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ....clock import Clock
from ....errors import InvalidInput
from ....storage import shown_url
from ..write.steps import Steps
from .connections import AsyncUserConnection, SyncUserConnection, user_connection

if TYPE_CHECKING:
    from .transaction import TransactionalEnqueue as TransactionalEnqueue

_SCHEMES = ("postgresql", "postgres")


def enqueue_into(url: str, *, clock: Clock | None) -> TransactionalEnqueue:
    """The transactional enqueue of the store of this URL. Raises `InvalidInput` for other stores than PostgreSQL.

    >>> enqueue_into("memory:", clock=None)
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: connection: jobs can be submitted within a transaction ...
    """
    if urlsplit(url).scheme not in _SCHEMES:
        raise InvalidInput(
            "connection",
            "jobs can be submitted within a transaction only with a PostgreSQL store, and this one is "
            f"{shown_url(url)}; submit without the connection",
        )
    # here, so that a program that never enqueues does not load the schema
    from .transaction import TransactionalEnqueue  # noqa: PLC0415 - see above

    return TransactionalEnqueue.into(url, clock=clock)


__all__ = ["AsyncUserConnection", "Steps", "SyncUserConnection", "enqueue_into", "user_connection"]
