"""The adapters of stores on servers, for the suite. All have a place of their own on the servers that a run shares."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import cache
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from mainstay.stores.versioned import dynamodb, nats, objects
from servers.azurite import azure_url
from servers.gcs import gcs_url
from servers.moto import dynamodb_url, s3_url
from tests.places import server_url
from tests.stores.versioned.conformance.adapter import Adapter

_numbers = count()


@cache
def _prefix(folder: Path) -> str:
    """The same folder, the same place; the number of the process keeps the workers of a run apart."""
    return f"t{os.getpid()}-{next(_numbers)}"


_ready: set[str] = set()


def once(prepare: Callable[[str], Awaitable[list[str]]]) -> Callable[[str], Awaitable[None]]:
    """The bucket or table is the same for all places on a server."""

    async def prepared(url: str) -> None:
        parts = urlsplit(url)
        what = f"{parts.scheme}://{parts.netloc}/{parts.query}"
        if what not in _ready:
            await prepare(url)
            _ready.add(what)

    return prepared


def on(kind: str, url: Callable[[str, str], str]) -> Callable[[Path], str]:
    return lambda folder: url(server_url(kind), _prefix(folder))


def apart(url: Callable[[str, str], str]) -> Callable[[str, str], str]:
    """A bucket or table of its own: moto looks at all that is in one whenever it is asked for a few."""
    return lambda server, prefix: url(server, prefix).replace("://registry/", f"://{prefix}/", 1)


def nats_url(server: str, prefix: str) -> str:
    return f"{server}/registry/{prefix}"


def remote(
    name: str,
    at: Callable[[Path], str],
    prepare: Callable[[str], Awaitable[list[str]]],
    *,
    largest: int = 1024 * 1024,
    many: int = 100,
) -> Adapter:
    return Adapter(name=name, at=at, prepare=once(prepare), largest=largest, many=many, busy=10, examples=8)


REMOTE: list[Adapter] = [
    remote("s3", on("moto", apart(s3_url)), objects.prepare),
    # more than the thousand that a service lists in one answer, on the fastest server
    remote("gcs", on("gcs", gcs_url), objects.prepare, many=1_250),
    remote("azure", on("azurite", azure_url), objects.prepare),
    remote("dynamodb", on("moto", apart(dynamodb_url)), dynamodb.prepare, largest=390_000),
    remote("nats", on("nats", nats_url), nats.prepare),
]
