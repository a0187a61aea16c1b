"""Whoever observes a store hears of every event it commits, and of nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from mainstay.lifecycle import Event
from mainstay.stores import Written
from tests.conformance.world import World


def heard_by(world: World) -> list[Written]:
    heard: list[Written] = []

    def hear(written: Sequence[Written]) -> None:
        heard.extend(written)

    world.store.observer = hear
    return heard


def events_in(heard: Sequence[Written]) -> set[tuple[str, int]]:
    return {(event.job_id, event.seq) for _, _, events in heard for event in events}


async def stored(world: World) -> list[Event]:
    return [event for found in await world.store.audit() for event in found.events]


async def test_every_stored_event_is_heard_once_wherever_it_comes_from(world: World) -> None:
    heard = heard_by(world)
    await world.open("s1")
    first = await world.submit(queue="a")
    await world.submit(queue="b", after=[first])  # moved on by the store itself
    await world.submit(queue="c", delay_s=5)  # made ready by the claim
    [job] = await world.claim(queues=["a"])
    await world.store.apply([world.change(job, "succeeded", holder="s1", spawn=(world.new(queue="d"),))])
    world.clock.advance(6)
    await world.claim(queues=["c"])
    await world.store.tick("nightly", world.clock.now_ms(), [world.new(queue="e")])

    trail = await stored(world)

    assert len(trail) == sum(len(events) for _, _, events in heard) == 10
    assert {(event.job_id, event.seq) for event in trail} == events_in(heard)


async def test_a_row_is_told_as_it_was_and_as_it_is(world: World) -> None:
    heard = heard_by(world)
    await world.open("s1")
    job = await world.running()

    assert [(None if before is None else before.status, after.status) for before, after, _ in heard] == [
        (None, "pending"),
        ("pending", "running"),
    ]
    assert heard[-1][1] == job


async def test_what_was_refused_is_not_heard(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    await world.move(job, "succeeded", holder="s1")
    heard = heard_by(world)

    answer = await world.move(job, "failed", holder="s1")

    assert answer.outcome != "applied"
    assert heard == []
