"""What one claim asks of the server: never more than a bounded part of what there is."""

from __future__ import annotations

from typing import Any

from mainstay.model import Options
from mainstay.stores.redis import RedisStore
from tests.conformance.world import World
from tests.stores.redis.conftest import Plain


async def test_due_rows_are_promoted_once_per_claim_and_then_what_is_ready_is_taken(world: World, plain: Plain) -> None:
    store = world.store
    assert isinstance(store, RedisStore)
    await world.open("s1")
    await world.store.insert([world.new(delay_s=5) for _ in range(1_200)])
    world.clock.advance(6)
    calls, run = [], store._base.scripts.run

    async def counted(name: str, args: Any, **more: Any) -> list[Any]:
        calls.append(name)
        return await run(name, args, **more)

    store._base.scripts.run = counted  # type: ignore[method-assign]
    assert len(await world.claim(n=10)) == 10
    assert calls == ["claim", "claim"]
    assert (plain("ZCARD", "ready:default"), plain("ZCARD", "due:default")) == (490, 700)


async def test_ready_rows_past_their_deadline_are_passed_once_and_not_all_at_once(world: World, plain: Plain) -> None:
    await world.open("s1")
    deadline = Options(start_by_ms=world.clock.now_ms() + 1000)
    await world.store.insert([world.new(options=deadline) for _ in range(1_500)])
    world.clock.advance(2)
    good = await world.submit()

    assert await world.claim() == []
    assert plain("ZCARD", "ready:default") == 501
    assert [job.id for job in await world.claim()] == [good.id]
    assert plain("ZCARD", "ready:default") == 0

    assert len(await world.store.overdue(limit=2_000)) == 1_500
    await world.assert_sound()


async def test_a_claim_that_passed_as_many_as_it_may_has_somebody_go_on(world: World) -> None:
    await world.open("s1")
    deadline = Options(start_by_ms=world.clock.now_ms() + 1000)
    await world.store.insert([world.new(options=deadline) for _ in range(1_001)])
    world.clock.advance(2)
    async with world.store.wake(["queue:default"]) as wake:
        assert await world.claim() == []
        assert await wake.wait(60)


async def test_a_lifted_limit_brings_blocked_rows_back_in_short_steps(world: World, plain: Plain) -> None:
    await world.open("s1")
    await world.store.set_limit("k", 1)
    await world.store.insert([world.new(concurrency_key="k") for _ in range(2_500)])
    [held] = await world.claim()
    while plain("ZCARD", "ready:default"):
        assert await world.claim() == []

    await world.store.set_limit("k", None)
    assert plain("ZCARD", "ready:default") == 1_000
    await world.move(held, "succeeded", holder="s1")
    assert plain("ZCARD", "ready:default") == 2_000
    [held] = await world.claim()
    await world.move(held, "succeeded", holder="s1")
    assert plain("ZCARD", "ready:default") == 2_498
    await world.assert_sound()
