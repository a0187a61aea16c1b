"""Inserting: all or nothing, idempotency keys, unique keys."""

from __future__ import annotations

import asyncio

import pytest

from mainstay.errors import Conflict, InvalidInput, KeyConflict, UniqueClash
from mainstay.stores import InsertResult, Query
from tests.conformance.world import World


async def test_an_inserted_job_is_stored_whole_with_its_first_event(world: World) -> None:
    new = world.new(name="mail.send", payload=b"\x81\xa1a\x01")

    assert await world.store.insert([new]) == [InsertResult(new.job.id, True)]

    assert await world.row(new.job.id) == new.job
    assert await world.store.events(new.job.id) == list(new.events)


async def test_inserting_nothing_is_fine(world: World) -> None:
    assert await world.store.insert([]) == []


async def test_get_answers_in_the_order_asked_with_none_for_the_unknown(world: World) -> None:
    first, second = await world.submit(), await world.submit()
    assert await world.store.get([second.id, "nobody", first.id]) == [second, None, first]


async def test_the_same_key_and_content_gives_the_first_job_back(world: World) -> None:
    first = await world.submit(key="order-7")
    before = await world.dump()

    assert await world.store.insert([world.new(key="order-7")]) == [InsertResult(first.id, False, "key")]

    assert await world.dump() == before


async def test_a_key_repeated_inside_one_batch_gives_one_job(world: World) -> None:
    batch = [world.new(key="a"), world.new(key="b"), world.new(key="a")]

    made = await world.store.insert(batch)

    assert made == [
        InsertResult(batch[0].job.id, True),
        InsertResult(batch[1].job.id, True),
        InsertResult(batch[0].job.id, False, "key"),
    ]
    assert await world.store.get([batch[2].job.id]) == [None]


async def test_a_key_with_other_content_is_refused_by_index_and_nothing_is_written(world: World) -> None:
    await world.submit(key="order-7")
    before = await world.dump()

    with pytest.raises(KeyConflict, match=r"jobs\[1\].*order-7"):
        await world.store.insert([world.new(), world.new(key="order-7", content=b"other"), world.new(key="fresh")])

    assert await world.dump() == before
    [made] = await world.store.insert([world.new(key="fresh", content=b"anything")])
    assert made.created, "the key of a refused batch must not be remembered"


async def test_a_key_with_other_content_inside_one_batch_is_refused(world: World) -> None:
    with pytest.raises(KeyConflict, match=r"jobs\[1\]"):
        await world.store.insert([world.new(key="k"), world.new(key="k", content=b"other")])
    assert (await world.dump())["rows"] == []


async def test_keys_of_different_tasks_do_not_meet(world: World) -> None:
    await world.submit(name="mail.send", key="k")
    [made] = await world.store.insert([world.new(name="mail.fetch", key="k", content=b"other")])
    assert made.created


async def test_an_expired_key_can_be_used_again(world: World) -> None:
    first = await world.submit(key="k", key_ttl_s=60)
    world.clock.advance(61)

    second = await world.submit(key="k", content=b"other")

    assert second.id != first.id
    assert await world.store.insert([world.new(key="k", content=b"other")]) == [InsertResult(second.id, False, "key")]


async def test_a_key_is_remembered_after_its_job_is_done(world: World) -> None:
    await world.open("s1")
    job = await world.running(key="k")
    await world.move(job, "succeeded", holder="s1")
    assert await world.store.insert([world.new(key="k")]) == [InsertResult(job.id, False, "key")]


async def test_concurrent_submits_of_one_key_give_one_job(world: World) -> None:
    made = await asyncio.gather(*(world.store.insert([world.new(key="once")]) for _ in range(20)))

    assert sum(one.created for [one] in made) == 1
    assert len({one.id for [one] in made}) == 1
    assert len((await world.dump())["rows"]) == 1


async def test_a_unique_key_is_held_until_its_job_settles(world: World) -> None:
    await world.open("s1")
    first = await world.running(unique_key="u")
    assert await world.store.insert([world.new(unique_key="u")]) == [InsertResult(first.id, False, "unique")]

    await world.move(first, "cancelling")
    assert await world.store.insert([world.new(unique_key="u")]) == [InsertResult(first.id, False, "unique")]

    await world.move(await world.row(first), "cancelled")
    [made] = await world.store.insert([world.new(unique_key="u")])
    assert made.created


async def test_a_unique_clash_is_refused_when_asked_and_nothing_is_written(world: World) -> None:
    holder = await world.submit(unique_key="u")
    before = await world.dump()

    with pytest.raises(UniqueClash, match=rf"jobs\[1\].*{holder.id}"):
        await world.store.insert([world.new(), world.new(unique_key="u", on_clash="refuse")])

    assert await world.dump() == before


async def test_a_unique_key_repeated_inside_one_batch_gives_one_job(world: World) -> None:
    first, second = world.new(unique_key="u"), world.new(unique_key="u")
    made = await world.store.insert([first, second])
    assert made == [InsertResult(first.job.id, True), InsertResult(first.job.id, False, "unique")]


async def test_a_job_that_waits_for_a_retry_still_holds_its_unique_key(world: World) -> None:
    await world.open("s1")
    job = await world.running(unique_key="u")
    await world.move(job, "failed", "scheduled", holder="s1")
    assert await world.store.insert([world.new(unique_key="u")]) == [InsertResult(job.id, False, "unique")]


async def test_a_settled_job_cannot_come_back_while_another_holds_its_unique_key(world: World) -> None:
    await world.open("s1")
    failed = await world.running(unique_key="u")
    await world.move(failed, "failed", holder="s1")
    await world.submit(unique_key="u")
    failed = await world.row(failed)
    before = await world.dump()

    answer = await world.move(failed, "pending")

    assert (answer.outcome, answer.job) == ("conflict", failed)
    assert await world.dump() == before


async def test_an_id_that_exists_is_refused_by_index_and_nothing_is_written(world: World) -> None:
    job = await world.submit()
    before = await world.dump()

    with pytest.raises(Conflict, match=rf"jobs\[2\].*{job.id}"):
        await world.store.insert([world.new(), world.new(), world.new(id=job.id, name="another")])

    assert await world.dump() == before


async def test_what_was_not_created_says_whether_its_key_or_its_unique_key_was_taken(world: World) -> None:
    [first] = await world.store.insert([world.new(name="t", key="k", unique_key="u")])
    jobs = [world.new(name="t", key="k", unique_key="u"), world.new(name="t", unique_key="u")]
    twins = [world.new(name="t", key="twin"), world.new(name="t", key="twin")]
    alike = [world.new(name="t", unique_key="alike"), world.new(name="t", unique_key="alike")]

    answers = await world.store.insert([*jobs, *twins, *alike])

    assert first.by == ""
    assert [(answer.created, answer.by) for answer in answers] == [
        (False, "key"),
        (False, "unique"),
        (True, ""),
        (False, "key"),
        (True, ""),
        (False, "unique"),
    ]


async def test_a_unit_of_a_job_that_is_not_there_is_refused_by_index_and_nothing_is_written(world: World) -> None:
    nobody = world.new().job.id
    parent = world.new()
    fine = [parent, world.new(parent=parent.job.id, unit="a"), world.new(parent=parent.job.id, unit="b")]

    with pytest.raises(InvalidInput, match=rf"jobs\[3\]\.parent: there is no job {nobody}"):
        await world.store.insert([*fine, world.new(parent=nobody, unit="c")])

    assert (await world.dump())["rows"] == []
    assert all(made.created for made in await world.store.insert(fine)), "a parent may come in the same batch"


async def test_a_spawned_unit_of_a_job_that_is_not_there_is_a_conflict(world: World) -> None:
    job = await world.submit()
    answer = await world.move(job, "cancelled", spawn=(world.new(parent=world.new().job.id, unit="a"),))
    assert (answer.outcome, answer.job) == ("conflict", job)


async def test_an_empty_key_and_an_empty_group_are_names_like_others(world: World) -> None:
    job = await world.submit(key="", group="")
    assert (job.key, job.group) == ("", "")
    [again] = await world.store.insert([world.new(key="")])
    assert (again.id, again.created) == (job.id, False)
    assert [found.id for found in (await world.store.find(Query(key=""))).jobs] == [job.id]
    assert [found.id for found in (await world.store.find(Query(group=""))).jobs] == [job.id]
