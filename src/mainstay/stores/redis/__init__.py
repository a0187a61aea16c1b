"""Redis and Valkey: many machines, the highest rate. Each step is one script on the server, which is single-threaded.

- `store.py` the port; `address.py` the URL; `wire.py` one connection, `connection.py` several; `server_check.py` the
  requirements on a server; `errors.py` translates its errors
- `lua/` the scripts, with the key layout at the head of `prelude.lua`; `scripts.py` calls them; `rows.py` values
- `changes.py`, `entry.py`, `selection.py`, `waits.py`, `directory.py`, `retention.py`, `queries.py`, `audit.py` the
  operations by purpose; `transaction.py` those that Python must decide
- `wake.py` subscriptions; `liveness.py` dead processes
"""

from __future__ import annotations

from ...clock import Clock
from ...lifecycle import Chain
from ..port import JobStore
from .address import parse
from .store import RedisStore


async def open_redis(url: str, *, clock: Clock, chain: Chain, options: dict[str, str]) -> JobStore:
    """Open `redis://host:6379/0` or another form of it; `address.py` lists them.

    Options: `prefix` (the namespace, default mainstay), `pool` (most connections, 8), `connect_timeout` (5s), `retries`
    (how often a call is sent again after the connection was lost, 6), `allow_eviction` (off: a server that evicts keys
    when its memory is full is refused), `auto_migrate`, `db`, and for `rediss:` the options of TLS.
    """
    return await RedisStore.open(url, parse(url, options), clock=clock, chain=chain)


__all__ = ["RedisStore", "open_redis"]
