"""What these tests share: several stores on one database, and waiting for what sends no event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import psycopg

from mainstay.stores import JobStore, open_store
from mainstay.stores.postgres.store import PostgresStore
from tests.conformance.world import World


class Stores:
    def __init__(self) -> None:
        self._open: list[JobStore] = []

    async def open(self, url: str) -> World:
        store = await open_store(url)
        self._open.append(store)
        return World(store, store.clock, seed=len(self._open))  # type: ignore[arg-type]  # it is only read here

    async def close(self) -> None:
        for store in self._open:
            await store.close()


def postgres(world: World) -> PostgresStore:
    assert isinstance(world.store, PostgresStore)
    return world.store


async def until(condition: Callable[[], Awaitable[bool]], *, within_s: float = 90) -> float:
    """How long it took until something was so that sends no event."""
    begun = time.monotonic()
    while not await condition():
        assert time.monotonic() - begun < within_s, "it never came to be"
        await asyncio.sleep(0.02)
    return time.monotonic() - begun


def ask(url: str, sql: str, *values: object) -> list[tuple[object, ...]]:
    """Ask the server directly, as somebody else."""
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        found = connection.execute(sql, values)
        return found.fetchall() if found.description else []
