"""PostgreSQL: many machines, one schema per application.

- `store.py` the port; `engine.py`, `pool.py` statements and transactions that survive a lost connection; `trouble.py`
  errors; `address.py` the URL
- `schema.py` tables and migrations, `sql/` the functions of the server; `rows.py` values; `entering.py`, `writing.py`,
  `changing.py`, `selection.py`, `waits.py`, `registry.py`, `retention.py`, `reading.py`, `audit.py` what is done, by
  purpose
- `line.py` the one connection that stays; on it `liveness.py` session locks, and `wake.py` and `listening.py`
  notifications; `beats.py` heartbeats; `times.py` how long all this waits for each other
- `migrating.py` bringing a database up, `versions.py` what a program can work with
- `enqueue.py` jobs submitted within a user's own transaction
"""

from __future__ import annotations

from ...clock import Clock
from ...lifecycle import Chain
from ..port import JobStore
from .address import parse


async def open_postgres(url: str, *, clock: Clock, chain: Chain, options: dict[str, str]) -> JobStore:
    """Open `postgresql://user:password@host:5432/database`; see `address.py` for the options."""
    from .store import PostgresStore  # noqa: PLC0415 - who submits in transactions of their own may lack its driver

    return await PostgresStore.open(url, parse(url, options), clock=clock, chain=chain)


__all__ = ["open_postgres"]
