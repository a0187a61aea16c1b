"""A place of its own for each test on the servers that a run shares: a schema, or a prefix of keys.

A place belongs to a folder, which is the test's own as well: the same folder is the same place. All that a test was
given is cleared after it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import NoReturn
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
import redis

from servers import ServerMissing
from servers.shared import shared

_given: dict[Path, str] = {}
#: schemas that were emptied: making one takes half a second, emptying it a hundredth of that
_emptied: list[str] = []
_reusable: set[str] = set()
_numbers = count()
#: the connections of this module, to be closed when the run is over
_connections = contextlib.ExitStack()


def without(error: ServerMissing) -> NoReturn:
    """A test that cannot have its server, its own or the run's, is skipped by name; on CI it fails."""
    if os.environ.get("CI"):
        pytest.fail(f"CI runs every test, and {error}", pytrace=False)
    pytest.skip(str(error))


@cache
def server_url(kind: str) -> str:
    """The run's server of this kind. It may have to be installed first, which takes minutes: the limit of a test is for
    what the test does."""
    with unlimited():
        return shared(kind)


@contextlib.contextmanager
def unlimited() -> Iterator[None]:
    """The time that this takes is not the test's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left_s)


def place(kind: str, folder: Path, *, reusable: bool = False) -> str:
    """A store's URL. `reusable` promises that nothing but a store's own methods touches it."""
    if folder not in _given:
        server = server_url(kind)
        if kind == "postgresql" and reusable and _emptied:
            _given[folder] = _emptied.pop()
        else:
            option = "schema" if kind == "postgresql" else "prefix"
            # the number of the process keeps the workers of a run apart
            _given[folder] = f"{server}?{option}=t{os.getpid()}_{next(_numbers)}&auto_migrate=on"
        if reusable:
            _reusable.add(_given[folder])
    return _given[folder]


def clear_given() -> None:
    """Clear all places that are in use."""
    for folder in list(_given):
        clear(folder)


def close() -> None:
    """Close the connections that cleared the places."""
    _connections.close()


def clear(folder: Path) -> None:
    """Leave nothing in the place of a folder; no store may be open on it."""
    url = _given.pop(folder)
    parts = urlsplit(url)
    options = parse_qs(parts.query)
    server = parts._replace(query="").geturl()
    if "prefix" in options:
        client = _redis(server)
        if keys := list(client.scan_iter(match=f"{{{options['prefix'][0]}}}:*", count=10_000)):
            client.unlink(*keys)
    elif url in _reusable:
        _empty(_postgres(server), options["schema"][0])
        _emptied.append(url)
    else:
        _drop(_postgres(server), options["schema"][0])


def _drop(db: psycopg.Connection, schema: str) -> None:
    drop = f"DROP SCHEMA IF EXISTS {schema} CASCADE"
    try:
        db.execute(drop)
    except psycopg.errors.DeadlockDetected:
        # of a connection that a test cut, the server carries out the last statement; it is over by now
        db.execute(drop)


def _empty(db: psycopg.Connection, schema: str) -> None:
    found = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema]).fetchall()
    # what was migrated stays known; whether the trail has a key is found out anew
    statements = [f"DELETE FROM {schema}.{table}" + " WHERE name = 'audit'" * (table == "facts") for (table,) in found]
    db.execute("; ".join(statements))


@cache
def _postgres(url: str) -> psycopg.Connection:
    # a store that a failed test left open must not hold up the tests that follow
    options = "-c lock_timeout=5s -c client_min_messages=warning"
    return _connections.enter_context(contextlib.closing(psycopg.connect(url, autocommit=True, options=options)))


@cache
def _redis(url: str) -> redis.Redis:
    return _connections.enter_context(contextlib.closing(redis.Redis.from_url(url)))
