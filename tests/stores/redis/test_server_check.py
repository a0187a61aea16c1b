"""Which servers are let in, and what is said about an answer on each. Against real ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
import redis

from mainstay.errors import StoreError, StoreReadOnly, UnsafeEngine
from mainstay.stores.redis.address import RedisAddress, parse
from mainstay.stores.redis.connection import RedisServer
from mainstay.stores.redis.server_check import RedisServerFacts, admit, facts
from servers import Redis
from servers.server import free_port


@contextmanager
def started(folder: Path, **options: str) -> Iterator[Redis]:
    server = Redis(folder, **options)
    try:
        yield server
    finally:
        server.stop()


def address(url: str) -> RedisAddress:
    return parse(url, dict(parse_qsl(urlsplit(url).query)))


async def asked(url: str) -> RedisServerFacts:
    server = RedisServer(address(url))
    try:
        return await server.call(facts)
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"appendonly": "yes", "appendfsync": "always"}, "of the server and of its machine (appendfsync always)"),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "the last second or two of answered calls"),
        ({"appendonly": "yes", "appendfsync": "no"}, "(appendfsync no)"),
        ({"appendonly": "no", "appendfsync": "always"}, "but not of the server: it keeps no append-only file"),
    ],
)
async def test_durability_says_what_the_server_is_configured_to_lose(
    tmp_path: Path, options: dict[str, str], told: str
) -> None:
    with started(tmp_path, **options) as server:
        found = await asked(server.url())
    assert told in found.durability
    assert (found.product, found.version) == ("Redis", server.version)
    admit(found, address(server.url()))


async def test_where_the_configuration_is_hidden_the_rest_is_still_known(tmp_path: Path) -> None:
    with started(tmp_path, appendonly="yes", maxmemory_policy="allkeys-lru") as server:
        admin = redis.Redis.from_url(server.url())
        admin.acl_setuser("ann", enabled=True, passwords="+secret", commands=["+@all", "-config"], keys="*")
        url = server.url().replace("redis://", "redis://ann:secret@")
        found = await asked(url)
    assert (found.appendonly, found.appendfsync, found.policy) == (True, None, "allkeys-lru")
    assert "is not known" in found.durability
    with pytest.raises(UnsafeEngine, match="allkeys-lru"):
        admit(found, address(url))


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
async def test_a_server_that_evicts_is_refused_unless_told(tmp_path: Path, policy: str) -> None:
    with started(tmp_path, maxmemory_policy=policy) as server:
        found = await asked(server.url())
    with pytest.raises(UnsafeEngine, match=f"maxmemory-policy {policy}.*allow_eviction=on"):
        admit(found, address(server.url()))
    admit(found, address(f"{server.url()}?allow_eviction=on"))
    assert f"evicts jobs (maxmemory-policy {policy})" in found.durability


async def test_a_replica_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with started(tmp_path / "a") as first, started(tmp_path / "b", replicaof=f"127.0.0.1 {first.port}") as copy:
        found = await asked(copy.url())
    with pytest.raises(StoreReadOnly, match="name the primary"):
        admit(found, address(copy.url()))


async def test_a_cluster_has_one_database(tmp_path: Path) -> None:
    with started(tmp_path, cluster_enabled="yes", cluster_port=str(free_port())) as server:
        found = await asked(server.url())
        admit(found, address(server.url(0)))
        with pytest.raises(StoreError, match="number 0"):
            admit(found, address(server.url(1)))


@pytest.mark.parametrize("version", ["6.2.14", "5.0", "0"])
def test_an_old_server_is_refused(version: str) -> None:
    with pytest.raises(StoreError, match=r"needs 7\.0 or newer"):
        admit(RedisServerFacts(product="Redis", version=version), address("redis://cache"))


@pytest.mark.parametrize(("product", "version"), [("Redis", "7.0.0"), ("Redis", "8.2.1"), ("Valkey", "8.0.1")])
def test_a_current_one_is_let_in(product: str, version: str) -> None:
    admit(RedisServerFacts(product=product, version=version, policy="noeviction"), address("redis://cache"))
