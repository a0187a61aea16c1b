"""How safe an answer of PostgreSQL is: what is asked for is what the server does, and it is told in words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from mainstay import App
from mainstay.stores import Durability, open_store
from mainstay.stores.postgres.connection.durability import promised
from mainstay.testing import VirtualClock
from servers import Postgres, folder
from tests import places
from tests.conformance.world import World
from tests.stores.postgres.transactions import server

SAFE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "synchronous_standby_names": ""}


@pytest.mark.parametrize(
    ("level", "settings", "words"),
    [
        (
            None,
            {},
            ["as the server is configured (synchronous_commit=on)", "on the server's disk", "no replica confirms it"],
        ),
        (None, {"synchronous_commit": "off"}, ["a crash of the server may lose the last ones"]),
        ("local", {"synchronous_standby_names": "a"}, ["local: on the server's disk; without waiting for a replica"]),
        ("replicated", {}, ["replicated: ", "no replica confirms it, because its synchronous_standby_names is empty"]),
        ("replicated", {"synchronous_standby_names": "a"}, ["on the disks of the server and of its", "standbys (a)"]),
        ("applied", {"synchronous_standby_names": "a"}, ["applied: ", "(a), and visible to readers there"]),
        (None, {"synchronous_commit": "remote_write", "synchronous_standby_names": "a"}, ["not yet on their disks"]),
        ("local", {"fsync": "off"}, ["but it runs with fsync=off: a crash of its machine may lose or damage anything"]),
    ],
)
def test_the_words_say_what_was_asked_for_and_what_is_configured(
    level: Durability | None, settings: dict[str, str], words: list[str]
) -> None:
    said = promised(level, {**SAFE, **settings})

    for each in words:
        assert each in said


@pytest.mark.parametrize(
    ("option", "level", "seen"),
    [
        ("", None, "off"),  # as the server of the tests is set
        ("", "local", "local"),
        ("", "replicated", "on"),
        ("", "applied", "remote_apply"),
        ("&durability=replicated", None, "on"),
        ("&durability=applied", "local", "local"),
    ],
)
@pytest.mark.parametrize("keyed", [False, True])
async def test_a_submit_is_committed_at_its_level(
    postgres_url: str, option: str, level: Any, seen: str, keyed: bool
) -> None:
    store = await open_store(postgres_url + option, clock=VirtualClock())
    db = await asyncpg.connect(server(postgres_url))
    try:
        schema = postgres_url.partition("schema=")[2].partition("&")[0]
        await db.execute(f"""
            CREATE TABLE {schema}.seen (level text);
            CREATE FUNCTION {schema}.look() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                INSERT INTO {schema}.seen VALUES (current_setting('synchronous_commit'));
                RETURN NULL;
            END $$;
            CREATE TRIGGER looked AFTER INSERT ON {schema}.jobs EXECUTE FUNCTION {schema}.look();
        """)
        world = World(store, store.clock)  # type: ignore[arg-type]
        await store.insert([world.new(unique_key="u" if keyed else None)], durability=level)
        # the next one asks for nothing, on a connection that was used for something else
        await store.insert([world.new()])

        default = "on" if option == "&durability=replicated" else "remote_apply" if option else "off"
        assert [row[0] for row in await db.fetch(f"SELECT level FROM {schema}.seen")] == [seen, default]
    finally:
        await db.close()
        await store.close()


async def test_the_handle_says_what_was_reached(postgres_url: str) -> None:
    app = App(postgres_url)

    @app.task(name="mail.send")
    def send(to: str) -> None: ...

    async with app:
        asked = await send.options(durability="replicated").submit("a@b.c")
        usual = await send.submit("a@b.c")
        many = await app.submit_many([send.job("b"), send.options(durability="applied").job("c")])

    assert asked.durability.startswith("replicated: on the server's disk; no replica confirms it")
    assert "fsync=off" in asked.durability
    assert usual.durability.startswith("as the server is configured (synchronous_commit=off)")
    assert [each.durability.split(":")[0] for each in many] == ["applied", "applied"]


@pytest.fixture
def own_server() -> Iterator[str]:
    places.server_url("postgresql")  # where there is none, the test is skipped
    with folder("promises-") as place:
        started = Postgres(place)
        try:
            yield f"{started.url()}?auto_migrate=on"
        finally:
            started.stop()


@pytest.mark.slow
async def test_replicated_waits_for_the_replica_and_local_does_not(own_server: str) -> None:
    store = await open_store(own_server, clock=VirtualClock())
    db = await asyncpg.connect(urlsplit(own_server)._replace(query="").geturl())
    world = World(store, store.clock)  # type: ignore[arg-type]
    try:
        await db.execute("ALTER SYSTEM SET synchronous_standby_names TO 'nobody'")
        await db.execute("SELECT pg_reload_conf()")
        await store.insert([world.new()], durability="local")

        waits = asyncio.ensure_future(store.insert([world.new()], durability="replicated"))
        while not await db.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"):
            await asyncio.sleep(0.01)
        assert not waits.done()

        await db.execute("ALTER SYSTEM RESET synchronous_standby_names")
        await db.execute("SELECT pg_reload_conf()")
        [made] = await waits
        assert made.created
    finally:
        await db.close()
        await store.close()
