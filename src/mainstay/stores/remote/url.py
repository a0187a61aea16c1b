"""Open the store behind the managers of a cluster by its URL.

`remote+nats://USER:PASSWORD@HOST:PORT/?cluster=NAME&role=node&name=n1`, with TLS `remote+tls://HOST:PORT,HOST:PORT/?...`
and the files `ca`, `cert` and `key`.
"""

from __future__ import annotations

import asyncio
import os

from ...bus.nats import JoinSettings, client_tls, connect_nats, parse_servers
from ...clock import Clock, SystemClock
from ...errors import InvalidInput, UnknownOption
from ...lifecycle import Chain
from .store import RemoteStore
from .versions import MAINSTAY_VERSION

_KNOWN = ("cluster", "environment", "role", "name", "ca", "cert", "key")


async def open_remote(url: str, *, clock: Clock, chain: Chain, options: dict[str, str]) -> RemoteStore:
    """Connect to the bus, and ask a manager about its store. A node waits for both, in whatever order they start."""
    del chain  # managers seal
    for name in options:
        if name not in _KNOWN:
            raise UnknownOption(name, _KNOWN)
    for name in ("cluster", "role", "name"):
        if not options.get(name):
            raise InvalidInput("store", f"the URL of a store behind managers needs {name}=...")
    tls = client_tls({name: options[name] for name in ("ca", "cert", "key") if name in options})
    servers = parse_servers(url.removeprefix("remote+"), field="store", secure=tls is not None)
    role, name = options["role"], options["name"]
    join = JoinSettings.from_env(os.environ)
    bus = await connect_nats(
        servers,
        # another name than that of the program's own connection: the end of this one does not mean that it has gone
        name=f"{role}.{name}.store",
        inbox=f"_INBOX.{role}.{name}",
        tls=tls,
        timeout_s=None if role == "node" else join.command_s,
        join=join,
    )
    store = RemoteStore(
        bus,
        role=role,
        name=name,
        cluster=options["cluster"],
        environment=options.get("environment", "default"),
        version=MAINSTAY_VERSION,
        clock=None if isinstance(clock, SystemClock) else clock,
        url=url,
        owns_bus=True,
    )
    try:
        return await store.open()
    except BaseException:
        await asyncio.shield(store.close())
        raise


__all__ = ["open_remote"]
