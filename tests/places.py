"""A place of its own for each test on the servers that a run shares: a schema, or a prefix of keys.

A place belongs to a folder, which is the test's own as well: the same folder is the same place. All that a test was
given is cleared after it.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
import redis

from servers import ServerMissing
from servers.shared import shared

_given: set[str] = set()


def server_url(kind: str) -> str:
    """The run's server, `postgresql` or `redis`. Where it cannot be had the test is skipped, on CI it fails."""
    try:
        return _shared(kind)
    except ServerMissing as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI runs every test, and {error}", pytrace=False)
        pytest.skip(str(error))


@cache
def _shared(kind: str) -> str:
    return shared(kind)


def place(kind: str, folder: Path) -> str:
    """A store's URL."""
    name = "t" + hashlib.blake2s(str(folder).encode(), digest_size=10).hexdigest()
    option = "schema" if kind == "postgresql" else "prefix"
    url = f"{server_url(kind)}?{option}={name}&auto_migrate=on"
    _given.add(url)
    return url


def clear_given() -> None:
    """Clear all places that are in use."""
    for url in list(_given):
        clear(url)


def clear(url: str) -> None:
    """Leave nothing of a place; no store may be open on it."""
    _given.discard(url)
    parts = urlsplit(url)
    options = parse_qs(parts.query)
    server = parts._replace(query="").geturl()
    if "schema" in options:
        _postgres(server).execute(f"DROP SCHEMA IF EXISTS {options['schema'][0]} CASCADE")
    else:
        client = _redis(server)
        if keys := list(client.scan_iter(match=f"{{{options['prefix'][0]}}}:*", count=10_000)):
            client.unlink(*keys)


@cache
def _postgres(url: str) -> psycopg.Connection:
    # a store that a failed test left open must not hold up the tests that follow
    return psycopg.connect(url, autocommit=True, options="-c lock_timeout=5s -c client_min_messages=warning")


@cache
def _redis(url: str) -> redis.Redis:
    return redis.Redis.from_url(url)
