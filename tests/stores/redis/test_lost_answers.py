"""An answer that is lost on the way is found again: by its sender, and by whoever watches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis import exceptions as driver

from mainstay.errors import SessionLost
from mainstay.lifecycle import Move
from mainstay.stores import Written
from mainstay.stores.redis import RedisStore
from mainstay.stores.redis.changes import apply_changes
from tests.conformance.world import World


async def _nothing() -> None:
    pass


def lose_answer(world: World, meanwhile: Callable[[], Awaitable[object]] = _nothing, *, number: int = 1) -> None:
    """The answer to one of the next calls, and something that happens before it is sent again."""
    store = world.store
    assert isinstance(store, RedisStore)
    server = store._base.server
    call, calls = server.call, 0

    async def losing(work: Callable[[Any], Awaitable[Any]]) -> Any:
        nonlocal calls
        calls += 1
        tries = 0
        is_it = calls == number

        async def once(client: Any) -> Any:
            nonlocal tries
            tries += 1
            answer = await work(client)
            if is_it and tries == 1:
                await meanwhile()
                raise driver.ConnectionError("lost")
            return answer

        return await call(once)

    server.call = losing  # type: ignore[method-assign]


@pytest.fixture
def told(world: World) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []

    def observe(written: Any) -> None:
        lines: list[Written] = list(written)
        found.extend((before.status if before else "", after.status) for before, after, _ in lines)

    world.store.observer = observe
    return found


async def test_a_last_unit_is_still_told_to_be_the_last(world: World, told: list[tuple[str, str]]) -> None:
    await world.open("s1")
    parent = await world.submit(queue="parents")
    await world.store.insert([world.new(queue="units", parent=parent.id, unit="1")])
    [unit] = await world.claim(queues=["units"])
    told.clear()
    lose_answer(world)
    answer = await world.move(unit, "succeeded", holder="s1")
    assert (answer.outcome, answer.last) == ("applied", True)
    assert told == [("running", "succeeded")]


async def test_what_a_decision_wrote_is_told_once(world: World, told: list[tuple[str, str]]) -> None:
    await world.open("s1")
    first = await world.running()
    then = await world.submit(queue="then", after=[first])
    told.clear()
    lose_answer(world, number=2)  # look, then commit
    answer = await world.move(first, "succeeded", holder="s1", spawn=(world.new(queue="more"),))
    assert answer.outcome == "applied"
    assert sorted(told) == [("", "pending"), ("running", "succeeded"), ("scheduled", "pending")]
    assert await world.story(then) == ["scheduled", "pending"]
    await world.assert_sound()


async def test_a_claim_has_the_jobs_that_somebody_wrote_a_note_on(world: World) -> None:
    await world.open("s1")
    job = await world.submit()
    store = world.store
    assert isinstance(store, RedisStore)
    raw = store._base

    async def note() -> None:
        [row] = await raw.jobs([job.id])
        assert row is not None
        change = world.change(row, Move(to=row.status, flag="note", reason="hello"))
        [answer] = await apply_changes(raw, [world.sealed(change)], None)
        assert answer.outcome == "applied"

    lose_answer(world, note)
    assert [found.id for found in await world.claim(n=5)] == [job.id]
    assert await world.claim(n=5) == []
    await world.assert_sound()


async def test_a_promotion_is_told_by_who_made_it(world: World, told: list[tuple[str, str]]) -> None:
    await world.open("s1")
    await world.submit(delay_s=5)
    world.clock.advance(6)
    told.clear()
    lose_answer(world, number=2)  # what is due, then the claim
    assert len(await world.claim()) == 1
    assert told == [("scheduled", "pending"), ("pending", "running")]


async def test_a_promotion_that_was_not_made_is_not_told(world: World, told: list[tuple[str, str]]) -> None:
    store = world.store
    assert isinstance(store, RedisStore)
    await world.open("s1")
    job = await world.submit(delay_s=5)
    world.clock.advance(6)
    told.clear()
    run = store._base.scripts.run

    async def dying(name: str, args: Any, **more: Any) -> list[Any]:
        answer = await run(name, args, **more)
        if name == "claim" and answer[0] == b"due":
            await run("directory", ["close", "s1"])
        return answer

    store._base.scripts.run = dying  # type: ignore[method-assign]
    with pytest.raises(SessionLost):
        await world.claim()
    assert told == []
    assert (await world.row(job)).status == "scheduled"
