"""Plain commands: their answers are what a script would see."""

from __future__ import annotations

from typing import Any

from mainstay.stores.redis import RedisStore
from tests.conformance.world import World


async def ask(world: World, command: str, name: str, *args: str | int) -> Any:
    store = world.store
    assert isinstance(store, RedisStore)
    return await store._home.run(lambda: store._base.call(command, name, *args))


async def test_an_answer_is_as_the_server_gave_it(world: World) -> None:
    """A transaction sends answers back to be compared, on the server, with the same question asked anew."""
    await ask(world, "ZADD", "scores", 1000, "a")
    await ask(world, "HSET", "fields", "a", "1", "b", "2")

    assert await ask(world, "ZSCORE", "scores", "a") == b"1000"
    assert await ask(world, "ZSCORE", "scores", "b") is None
    assert await ask(world, "ZRANGE", "scores", 0, -1, "WITHSCORES") == [b"a", b"1000"]
    assert await ask(world, "HGETALL", "fields") == [b"a", b"1", b"b", b"2"]
    assert await ask(world, "SMEMBERS", "none") == []
