"""Batches of claims that end alike: what goes that way, and that it comes to the same as any other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainstay.lifecycle import Move, apply, completion
from mainstay.model import ErrorInfo, Job
from mainstay.stores import SealedChange
from mainstay.stores.postgres.write.completions import completion_arguments
from tests.conformance.world import World

from .overheard import Overheard, Ran
from .stands import Stores, ask

#: in the text of the statement
_MARK = "unnest(ids, claims_ms, texts)"


async def claimed(world: World, n: int) -> list[Job]:
    await world.open("s1", lease_s=600)
    await world.store.insert([world.new() for _ in range(n)])
    return await world.claim("s1", n)


def done(world: World, jobs: list[Job], **fields: Any) -> list[SealedChange]:
    """What a worker writes about work that is done; all at the same time."""
    now_ms, chain = world.clock.now_ms(), world.store.chain
    changes = []
    for job in jobs:
        values = {"result": None, "starts": job.starts + 1, "started_ms": 5, **fields}
        moved = apply(job, completion(**values), now_ms=now_ms, actor="s1", chain=chain)
        changes.append(SealedChange.of(job, moved, holder="s1"))
    return changes


def moved(world: World, job: Job, **fields: Any) -> SealedChange:
    """The same end as a move that changes more."""
    values = {"starts": job.starts + 1, **fields}
    move = Move(to="succeeded", reason=values.pop("reason", None), details={"started_ms": 5}, fields=values)
    ended = apply(job, move, now_ms=world.clock.now_ms(), actor="s1", chain=world.store.chain)
    return SealedChange.of(job, ended, holder="s1")


def alike_among(ran: list[Ran]) -> list[Ran]:
    return [each for each in ran if _MARK in each.sql]


async def test_a_batch_of_completions_is_found_by_its_ids_whatever_the_session_has_held_before(
    postgres_url: str, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Overheard(monkeypatch)
    world = await stores.open(postgres_url)
    schema = postgres_url.partition("schema=")[2].partition("&")[0]
    ask(postgres_url, f"ALTER TABLE {schema}.jobs SET (autovacuum_enabled = off)")
    ask(postgres_url, f"ANALYZE {schema}.jobs")
    jobs = await claimed(world, 600)
    changes = done(world, jobs[:200])

    ran = await heard.during(lambda: world.store.apply(changes))
    ask(postgres_url, f"ALTER TABLE {schema}.jobs RESET (autovacuum_enabled)")

    [settled] = alike_among(ran)
    assert settled.indexes == {"jobs_id"}
    assert settled.rows["jobs"] == 200
    assert [each for each in ran if each.rows.get("waits")] == []


async def test_it_comes_to_the_rows_and_events_that_were_decided(world: World) -> None:
    jobs = await claimed(world, 3)
    changes = done(world, [jobs[2], jobs[0], jobs[1]], result=b"\x01")
    assert completion_arguments(changes) is not None

    answers = await world.store.apply(changes)

    assert [answer.outcome for answer in answers] == ["applied"] * 3
    for change in changes:
        assert await world.row(change.after) == change.after
        submitted, taken, ended = await world.store.events(change.after.id)
        assert (submitted.to, taken.to, taken.actor, taken.digest) == ("pending", "running", "s1", change.before.head)
        assert ended == change.events[0]
    again = await world.store.apply(changes)
    assert [answer.outcome for answer in again] == ["already_applied"] * 3


async def test_what_differs_between_rows_goes_with_each(world: World) -> None:
    jobs = await claimed(world, 3)
    [first] = done(world, jobs[:1])
    await world.store.apply([world.change(jobs[1], Move(to="pending", fields={"starts": 4}), holder="s1")])
    [anew] = await world.claim("s1", 1)
    [second, third] = done(world, [anew, jobs[2]], result=b"\x02")
    changes = [second, third]
    assert (second.before.version, third.before.version) == (4, 2)
    assert completion_arguments(changes) is not None

    await world.store.apply(changes)
    await world.store.apply([first])

    for change in (first, second, third):
        assert await world.row(change.after) == change.after


async def test_a_claim_with_an_event_of_its_own_is_ended_all_the_same(
    postgres_url: str, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Overheard(monkeypatch)
    world = await stores.open(postgres_url)
    [job, other] = await claimed(world, 2)
    noted = (await world.move(job, Move(to="running", flag="note", reason="seen", fields={}), holder="s1")).job
    assert noted is not None
    # as if the note had been written in the millisecond of the claim
    within = msgspec.structs.replace(noted, changed_ms=noted.claimed_ms)
    changes = done(world, [within, other])
    assert completion_arguments(changes) is not None

    ran = await heard.during(lambda: world.store.apply(changes))

    assert alike_among(ran)
    for change in changes:
        assert await world.row(change.after) == change.after
    assert len(await world.store.events(job.id)) == 4


async def test_one_that_was_lost_is_refused_and_the_others_are_written(world: World) -> None:
    jobs = await claimed(world, 3)
    await world.open("s2", lease_s=600)
    await world.move(jobs[1], "pending", actor="sweeper")
    await world.claim("s2", 1)
    changes = done(world, jobs)
    assert completion_arguments(changes) is not None

    answers = await world.store.apply(changes)

    assert [answer.outcome for answer in answers] == ["applied", "stale", "applied"]


async def test_who_waits_for_one_of_them_moves_on(world: World) -> None:
    jobs = await claimed(world, 2)
    waiter = world.new(after=[jobs[0], jobs[1]])
    await world.store.insert([waiter])
    changes = done(world, jobs)
    assert completion_arguments(changes) is not None

    await world.store.apply(changes)

    assert (await world.row(waiter.job)).status == "pending"


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 5},
        {"failures": 1},
        {"due_ms": 7},
        {"rank": 7},
        {"extra_ms": 7},
        {"token": 2},
        {"reason": "so"},
        {"error": ErrorInfo(type="ValueError", message="the attempt before")},
    ],
    ids=lambda fields: next(iter(fields)),
)
async def test_a_move_that_changes_more_goes_the_other_way(world: World, fields: dict[str, Any]) -> None:
    [first, second] = await claimed(world, 2)
    changes = [*done(world, [first]), moved(world, second, **fields)]
    assert completion_arguments(changes[:1]) is not None
    assert completion_arguments(changes) is None

    answers = await world.store.apply(changes)

    assert [answer.outcome for answer in answers] == ["applied"] * 2
    for change in changes:
        assert await world.row(change.after) == change.after
        assert (await world.store.events(change.after.id))[-1] == change.events[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"parent": "018bcfe5-6800-7000-8000-000000000001"},
        {"concurrency_key": "key"},
        {"id": "no id"},
        {"changed_ms": 7},
    ],
    ids=lambda fields: next(iter(fields)),
)
async def test_a_completion_that_concerns_others_goes_the_other_way(world: World, fields: dict[str, Any]) -> None:
    changes = done(world, await claimed(world, 2))
    assert completion_arguments(changes) is not None
    changes[1] = msgspec.structs.replace(changes[1], after=msgspec.structs.replace(changes[1].after, **fields))
    assert completion_arguments(changes) is None


@pytest.mark.parametrize("fields", [{"holder": "s2"}, {"holder": None}, {"kind": "move"}], ids=str)
async def test_what_is_no_completion_of_the_same_session_goes_the_other_way(
    world: World, fields: dict[str, Any]
) -> None:
    changes = done(world, await claimed(world, 2))
    changes[1] = msgspec.structs.replace(changes[1], **fields)
    assert completion_arguments(changes) is None


async def test_of_one_row_twice_and_of_jobs_that_come_along_each_has_its_own_outcome(world: World) -> None:
    jobs = await claimed(world, 4)
    changes = done(world, jobs)
    changes[1] = msgspec.structs.replace(changes[1], spawn=(world.new(unique_key="one"),))
    changes[2] = msgspec.structs.replace(changes[2], spawn=(world.new(unique_key="one", on_clash="refuse"),))
    changes.append(changes[0])

    answers = await world.store.apply(changes)

    assert [answer.outcome for answer in answers] == ["applied", "applied", "conflict", "applied", "already_applied"]
    assert (await world.row(jobs[2])).status == "running"
    await world.store.apply([world.change(jobs[2], "pending", holder="s1")])
