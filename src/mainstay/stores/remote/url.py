"""Open the store behind the managers of a cluster by its URL.

`remote+nats://USER:PASSWORD@HOST:PORT/?cluster=NAME&role=node&name=n1`, with TLS `remote+tls://HOST:PORT/?...` and the
files `ca`, `cert` and `key`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from urllib.parse import urlsplit

from ...bus.nats import connect_nats
from ...clock import Clock, SystemClock
from ...errors import InvalidInput, UnknownOption
from ...lifecycle import Chain
from .store import RemoteStore
from .versions import MAINSTAY_VERSION

_KNOWN = ("cluster", "environment", "role", "name", "ca", "cert", "key")
#: the caller's name is one word of a subject
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SHORTEST_PASSWORD = 16
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
    if not _NAME.fullmatch(name):
        raise InvalidInput("store", f"name={name!r} is not one word of letters, digits, '_' and '-'")
    check_password(url, field="store")
    bus = await connect_nats(
        f"{parts.scheme}://{parts.netloc}",
        name=f"{role}.{name}",
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


def check_password(url: str, *, field: str) -> None:
    """Refuse the URL of a bus with a password that could be guessed.

    >>> check_password("nats://node:secret@127.0.0.1/shop", field="url")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: url: its password is shorter than 16 characters; draw a random one
    """
    password = urlsplit(url).password
    if password is not None and len(password) < _SHORTEST_PASSWORD:
        raise InvalidInput(field, f"its password is shorter than {_SHORTEST_PASSWORD} characters; draw a random one")


def _tls(options: dict[str, str]) -> ssl.SSLContext | None:
    if "ca" not in options:
        return None
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=options["ca"])
    context.load_cert_chain(options["cert"], options["key"])
    return context


__all__ = ["check_password", "open_remote"]
