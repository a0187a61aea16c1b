"""Private servers start on ports of their own, come back after a stop or a kill, and are gone with their starter."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

import servers
from servers.server import Process

ROOT = Path(__file__).parents[2]


@pytest.fixture
def place() -> Iterator[Path]:
    with servers.folder("mainstay-servers-") as made:
        yield made


def test_redis_gives_each_system_a_database_and_ends_when_stopped(place: Path) -> None:
    server = servers.Redis(place)
    try:
        first, second = server.database("a"), server.database("b")
        assert server.answers()
    finally:
        server.stop()

    assert first != second
    with pytest.raises(ConnectionRefusedError):
        server.answers()


def test_redis_takes_options_and_keeps_its_file_over_a_kill(place: Path) -> None:
    server = servers.Redis(place, appendonly="yes", appendfsync="always", maxmemory_policy="noeviction")
    try:
        redis.Redis.from_url(server.url()).set("a", "1")
        server.kill()
        server.start()
        client = redis.Redis.from_url(server.url())
        kept, fsync = client.get("a"), client.config_get("appendfsync")
    finally:
        server.stop()

    assert kept == b"1"
    assert fsync == {"appendfsync": "always"}


@pytest.mark.slow
def test_postgres_runs_even_for_root_and_comes_back_after_a_stop_and_a_kill(place: Path) -> None:
    server = servers.Postgres(place, work_mem="5MB")
    try:
        url = server.database("a")
        with psycopg.connect(url) as db:
            db.execute("CREATE TABLE kept (n int)")
        for end in (server.stop, server.kill):
            end()
            assert not server.answers()
            server.start()
            with psycopg.connect(url) as db:
                db.execute("INSERT INTO kept VALUES (1)")
                setting = db.execute("SHOW work_mem").fetchone()
        with psycopg.connect(url) as db:
            kept = db.execute("SELECT count(*) FROM kept").fetchone()
    finally:
        server.stop()

    assert url.endswith("/a")
    assert (kept, setting) == ((2,), ("5MB",))
    assert not server.answers()


@pytest.mark.slow
def test_pgbouncer_hands_every_transaction_to_any_connection(place: Path) -> None:
    postgres = servers.Postgres(place)
    pooler = servers.PgBouncer(place, postgres, pool_size=1)
    try:
        with psycopg.connect(pooler.url()) as one, psycopg.connect(pooler.url()) as other:
            backends = []
            for db in (one, other):
                backends.append(db.execute("SELECT pg_backend_pid()").fetchone())
                db.commit()
    finally:
        pooler.stop()
        postgres.stop()

    assert backends[0] == backends[1], "two clients shared the one connection"


def test_a_server_that_does_not_start_is_reported_with_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no luck')"]

    with pytest.raises(RuntimeError, match="did not start:\nno luck"):
        Process(command, tmp_path / "log", lambda: False, ends_on=signal.SIGTERM)


def test_a_server_goes_with_its_starter_even_if_that_is_killed(place: Path) -> None:
    program = (
        f"import pathlib, servers, time; s = servers.Redis(pathlib.Path({str(place)!r}));"
        "print(s._process._process.pid, flush=True); time.sleep(60)"
    )
    starter = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    server = os.pidfd_open(int(starter.stdout.readline()))

    starter.kill()
    starter.communicate()

    gone, _, _ = select.select([server], [], [], 20)
    os.close(server)
    assert gone, "the server outlived its starter"
