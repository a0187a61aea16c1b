"""PostgreSQL: many machines, one schema per application. `store.py` implements the port; behind it:

- `connection/`: connections, transactions, and recovery after the loss of a connection
- `schema/`: tables, functions and migrations
- `rows/`: jobs and events as values
- `write/`, `read/`, `directory/`, `check/`: the operations, by purpose
- `wake/`: notifications
- `enqueue/`: jobs submitted within a user's own transaction
"""

from __future__ import annotations

from ...clock import Clock
from ...lifecycle import Chain
from ..port import JobStore
from .connection.address import parse


async def open_postgres(url: str, *, clock: Clock, chain: Chain, options: dict[str, str]) -> JobStore:
    """Open `postgresql://user:password@host:5432/database`; see `address.py` for the options."""
    from .store import PostgresStore  # noqa: PLC0415 - a program with transactional enqueue only may lack its driver

    return await PostgresStore.open(url, parse(url, options), clock=clock, chain=chain)


__all__ = ["open_postgres"]
