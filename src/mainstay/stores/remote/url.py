"""Open the store behind the managers of a cluster by its URL.

`remote+nats://USER:PASSWORD@HOST:PORT/?cluster=NAME&role=node&name=n1`, with TLS `remote+tls://HOST:PORT/?...` and the
files `ca`, `cert` and `key`.
"""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

from ...bus.nats import connect_nats
from ...clock import Clock, SystemClock
from ...errors import InvalidInput, UnknownOption
from ...lifecycle import Chain
from .store import RemoteStore
from .versions import MAINSTAY_VERSION

_KNOWN = ("cluster", "environment", "role", "name", "ca", "cert", "key")
#: how long the first answer of a manager may take
_OPEN_S = 10.0


async def open_remote(url: str, *, clock: Clock, chain: Chain, options: dict[str, str]) -> RemoteStore:
    """Connect to the bus, and ask a manager about its store."""
    del chain  # managers seal
    for name in options:
        if name not in _KNOWN:
            raise UnknownOption(name, _KNOWN)
    for name in ("cluster", "role", "name"):
        if not options.get(name):
            raise InvalidInput("store", f"the URL of a store behind managers needs {name}=...")
    parts = urlsplit(url.removeprefix("remote+"))
    role, name = options["role"], options["name"]
    bus = await connect_nats(
        f"{parts.scheme}://{parts.netloc}",
        # not the name of the node itself: an engine that ends is not a node that has lost its connection
        name=f"{role}.{name}.store",
        inbox=f"_INBOX.{role}.{name}",
        tls=_tls(options),
        timeout_s=_OPEN_S,
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


def _tls(options: dict[str, str]) -> ssl.SSLContext | None:
    if "ca" not in options:
        return None
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=options["ca"])
    context.load_cert_chain(options["cert"], options["key"])
    return context


__all__ = ["open_remote"]
