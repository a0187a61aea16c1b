"""Losing the server and finding it again."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import redis as sync_redis

from mainstay.errors import StoreError, StoreUnavailable
from mainstay.model import IdSource, Session
from mainstay.stores import Query, open_store
from mainstay.stores.redis.address import parse
from mainstay.stores.redis.connection import RedisServer
from mainstay.stores.redis.wire import RedisWire
from mainstay.stores.server_clock import ServerClock
from mainstay.testing import new_job
from servers import Redis
from servers.server import free_port


def connected(url: str, **more: Any) -> RedisServer:
    return RedisServer(parse(url, dict(parse_qsl(urlsplit(url).query))), rng=random.Random(1), **more)


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[Redis]:
    server = Redis(tmp_path)
    yield server
    server.stop()


async def ping(wire: RedisWire) -> bool:
    return bool(await wire.ask("PING"))


async def test_a_call_waits_for_a_server_that_comes_back(own: Redis) -> None:
    server = connected(f"{own.url()}?retries=50")
    assert await server.call(ping)
    own.kill()
    calling = asyncio.create_task(server.call(ping))
    failed = asyncio.Event()
    pause_s = server.pause_s

    def noted(failures: int) -> float:
        failed.set()
        return pause_s(failures)

    server.pause_s = noted  # type: ignore[method-assign]
    await failed.wait()
    own.start()
    assert await calling
    await server.close()


async def test_after_enough_tries_it_says_who_cannot_be_reached() -> None:
    url = f"redis://ann:hunter2@127.0.0.1:{free_port()}/0?retries=1"
    server = connected(url)
    with pytest.raises(StoreUnavailable, match=r"ann:\*\*\*@127\.0\.0\.1.*repeating it is safe") as caught:
        await server.call(ping)
    assert "hunter2" not in str(caught.value)
    await server.close()


async def test_a_server_that_takes_the_connection_and_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = connected(
            f"redis://127.0.0.1:{silent.getsockname()[1]}/0?retries=0&connect_timeout=50ms", answer_s=0.05
        )
        with pytest.raises(StoreUnavailable, match="no answer in time"):
            await server.call(ping)
        await server.close()


async def test_the_pauses_grow_to_a_bound_and_are_not_alike() -> None:
    server = connected("redis://nowhere")
    pauses = [server.pause_s(n) for n in (1, 2, 3, 4, 10, 10_000)]
    assert 0.025 <= pauses[0] <= 0.05
    assert all(later > earlier for earlier, later in pairwise(pauses[:4]))
    assert all(1.0 <= pause <= 2.0 for pause in pauses[4:])
    assert pauses[4] != pauses[5]
    await server.close()


async def test_a_mistake_is_not_tried_again(own: Redis) -> None:
    server = connected(own.url())
    tries = 0

    async def wrong(wire: RedisWire) -> None:
        nonlocal tries
        tries += 1
        await wire.ask("EVAL", "return nonsense.x", 0)

    with pytest.raises(StoreError, match="refused"):
        await server.call(wrong)
    assert tries == 1
    await server.close()


async def test_more_callers_than_connections_take_turns(own: Redis) -> None:
    server = connected(f"{own.url()}?pool=2")
    assert all(await asyncio.gather(*(server.call(ping) for _ in range(50))))
    admin = sync_redis.Redis.from_url(own.url())
    assert len(admin.client_list()) <= 2 + 1
    await server.close()


async def test_a_socket_of_this_machine_will_do(tmp_path: Path) -> None:
    own = Redis(tmp_path, unixsocket=str(tmp_path / "redis.sock"))
    server = connected(f"redis://{tmp_path}/redis.sock?db=3")
    assert await server.call(ping)
    await server.close()
    own.stop()


async def test_the_servers_time_is_heard(own: Redis) -> None:
    server = connected(own.url())
    clock = ServerClock()
    await server.hear(clock)
    seconds, micros = sync_redis.Redis.from_url(own.url()).time()
    assert abs(clock.now_ms() - (seconds * 1000 + micros / 1000)) < 500
    await server.close()


async def test_in_a_cluster_the_calls_go_to_the_node_that_has_the_keys(tmp_path: Path) -> None:
    nodes = []
    buses = [free_port(), free_port()]
    for name, bus in zip("ab", buses, strict=True):
        (tmp_path / name).mkdir()
        nodes.append(Redis(tmp_path / name, cluster_enabled="yes", cluster_port=str(bus)))
    first, second = (sync_redis.Redis.from_url(node.url()) for node in nodes)
    first.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port, buses[1])
    second.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    while b"cluster_state:ok" not in first.execute_command("CLUSTER", "INFO"):
        await asyncio.sleep(0.02)

    store = await open_store(nodes[0].url())
    ids = IdSource(random.Random(1))
    async with store.wake(["queue:default"]) as wake:
        [made] = await store.insert([new_job(store.clock, ids)])
        assert await wake.wait(60) is True
    await store.open_session(Session(id="s1"))
    assert [job.id for job in await store.claim(["default"], "s1", 1)] == [made.id]
    assert await store.check() == []
    assert second.exists(f"{{mainstay}}:r:{made.id}") == 1
    await store.close()
    for node in nodes:
        node.stop()


needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="`openssl` is not on this machine")


@needs_openssl
async def test_over_tls_the_certificate_is_checked(tmp_path: Path) -> None:
    certificate, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key]
    command += ["-out", certificate, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(command, check=True, capture_output=True)
    port = free_port()
    files = {"tls_cert_file": certificate, "tls_key_file": key, "tls_ca_cert_file": certificate}
    own = Redis(tmp_path, tls_port=str(port), tls_auth_clients="no", **files)
    for url, fine in (
        (f"rediss://localhost:{port}?ssl_ca_certs={certificate}", True),
        (f"rediss://localhost:{port}?ssl_cert_reqs=none", True),
        (f"rediss://localhost:{port}?retries=0", False),
        (f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificate}&retries=0", False),
    ):
        server = connected(url)
        if fine:
            assert await server.call(ping)
        else:
            with pytest.raises(StoreUnavailable, match="certificate"):
                await server.call(ping)
        await server.close()
    own.stop()


async def test_a_store_is_closed_soon_though_its_server_is_gone(own: Redis) -> None:
    store = await open_store(f"{own.url()}?retries=1000")
    wake = store.wake(["queue:a", "job:x"])
    await store.due(["a"])
    own.kill()
    await wake.close()
    async with asyncio.timeout(60):  # all retries would take many times as long
        await store.close()


async def test_a_user_who_may_do_what_the_message_says_can_use_a_store(own: Redis) -> None:
    admin = sync_redis.Redis.from_url(own.url())
    admin.execute_command("ACL SETUSER app on >secret ~{mainstay}:* -@all")
    url = own.url().replace("redis://", "redis://app:secret@")
    with pytest.raises(StoreError, match="EVAL, EVALSHA, TIME, INFO and PING") as refused:
        await open_store(url)
    assert "secret" not in str(refused.value)
    admin.execute_command("ACL SETUSER app +@read +@write +eval +evalsha +time +info +ping")

    store = await open_store(url)
    await store.open_session(Session(id="s1"))
    async with store.wake(["queue:default"]):
        await store.insert([new_job(store.clock, IdSource(random.Random(1)), chain=store.chain)])
        assert len(await store.claim(["default"], "s1", 1)) == 1
    assert await store.check() == []
    await store.close()


async def test_a_call_waits_for_a_server_that_is_busy_with_anothers_script(own: Redis) -> None:
    admin = sync_redis.Redis.from_url(own.url())
    admin.config_set("busy-reply-threshold", 10)
    store = await open_store(f"{own.url()}?retries=50")
    script = (
        "local t = redis.call('TIME') repeat local n = redis.call('TIME') until (n[1] - t[1]) * 1e6 + n[2] - t[2] > 3e5"
    )
    hog = asyncio.create_task(asyncio.to_thread(admin.eval, script, 0))
    beside = sync_redis.Redis.from_url(own.url())
    busy = False
    while not busy and not hog.done():
        try:
            await asyncio.to_thread(beside.ping)
        except sync_redis.ResponseError as error:
            busy = "BUSY" in str(error)
    [made] = await store.insert([new_job(store.clock, IdSource(random.Random(1)), chain=store.chain)])
    assert (busy, made.created) == (True, True)
    await hog
    await store.close()


async def test_a_namespace_whose_name_begins_like_another_is_one_of_its_own(own: Redis) -> None:
    names = ("a", "ab", "a:b")
    stores = [await open_store(f"{own.url()}?prefix={name}") for name in names]
    ids = IdSource(random.Random(1))
    for n, store in enumerate(stores, start=1):
        await store.open_session(Session(id="s1"))
        await store.insert([new_job(store.clock, ids, chain=store.chain) for _ in range(n)])
    for n, store in enumerate(stores, start=1):
        assert len((await store.find(Query())).jobs) == n
        assert len(await store.claim(["default"], "s1", 10)) == n
        assert await store.check() == []
        await store.close()


@contextlib.asynccontextmanager
async def serving(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]],
) -> AsyncIterator[int]:
    """A server of our own on a port; told which of its connections this is."""
    numbers = itertools.count(1)

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await serve(reader, writer, next(numbers))
        writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_who_waits_for_a_connection_that_cannot_be_made_hears_so_with_whoever_tried() -> None:
    tried = 0

    async def turn_away(reader: asyncio.StreamReader, _: asyncio.StreamWriter, number: int) -> None:
        nonlocal tried
        tried = number
        await reader.read(1)

    async with serving(turn_away) as port:
        server = connected(f"redis://ann:hunter2@127.0.0.1:{port}/0?retries=0&pool=1")
        answers = await asyncio.gather(*(server.call(ping) for _ in range(20)), return_exceptions=True)
        assert {type(answer) for answer in answers} == {StoreUnavailable}
        assert tried == 1
        await server.close()


async def test_when_one_connection_is_dead_the_next_try_is_on_a_new_one() -> None:
    pool = 3
    dead = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        while await reader.read(1 << 16):
            if number > pool or not dead.is_set():
                await asyncio.sleep(0)  # so that the calls before do not share one
                writer.write(b"+PONG\r\n")

    async with serving(serve) as port:
        server = connected(f"redis://127.0.0.1:{port}/0?retries=1&pool={pool}&connect_timeout=500ms", answer_s=0.5)
        await asyncio.gather(*(server.call(ping) for _ in range(pool)))
        dead.set()
        assert await server.call(ping)
        await server.close()
