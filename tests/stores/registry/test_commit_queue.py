"""Operations become commits: few of them, in one order, whoever else commits."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from mainstay.errors import KeyConflict, PayloadTooLarge, StoreUnavailable, TooManyConflicts
from mainstay.lifecycle import Move
from mainstay.model import Job
from mainstay.stores import JobStore
from mainstay.stores.registry import JobRegistry
from mainstay.stores.versioned import VersionedStore, WriteUnsure
from mainstay.testing import VirtualClock
from tests.conformance.world import World
from tests.stores.registry.between import Between
from tests.stores.registry.conftest import Join


def registry(world: World) -> JobRegistry:
    assert isinstance(world.store, JobRegistry)
    return world.store


async def ids_in(store: JobStore) -> list[str]:
    return [found.job.id for found in await store.audit(limit=10_000)]


async def test_a_hundred_who_submit_while_a_commit_is_under_way_share_the_next(join: Join) -> None:
    world, way = await join()

    async def until_all_wait(call: str, key: str) -> None:
        if key == "log/000000000001":
            while len(registry(world)._base.commits._waiting) < 100:
                await asyncio.sleep(0.001)

    way.before = until_all_wait
    first = asyncio.ensure_future(world.submit())
    while not way.made("create", "log/"):
        await asyncio.sleep(0.001)
    made = await asyncio.gather(*(world.store.insert([world.new()]) for _ in range(100)))
    await first
    assert all(one.created for [one] in made)
    assert way.made("create", "log/") == 2
    assert len(await ids_in(world.store)) == 101


async def test_a_burst_of_reads_is_one_look_at_the_log(join: Join) -> None:
    world, way = await join()
    job = await world.submit()
    way.calls.clear()
    await asyncio.gather(*(world.store.get([job.id]) for _ in range(50)))
    assert len(way.calls) < 5
    assert set(way.calls) == {("get", "log/000000000002")}


async def test_what_changes_nothing_makes_no_commit(join: Join) -> None:
    world, way = await join()
    await world.open("s1")
    assert await world.claim() == []
    assert await world.store.overdue() == []
    assert await world.store.check() == []
    await world.store.close_session("s1")
    assert way.made("create", "log/") == 0


async def test_each_of_those_who_go_together_has_its_own_answer_or_its_own_error(join: Join) -> None:
    world, _ = await join()
    first = world.new(key="k")
    assert first.key is not None
    other = msgspec.structs.replace(world.new(key="k"), key=msgspec.structs.replace(first.key, content=b"other"))
    answers = await asyncio.gather(
        *(world.store.insert([new]) for new in (first, other, world.new())), return_exceptions=True
    )
    assert isinstance(answers[1], KeyConflict)
    assert [len(answer) for answer in (answers[0], answers[2])] == [1, 1]  # type: ignore[arg-type]
    assert len(await ids_in(world.store)) == 2


async def test_an_ending_with_its_result_is_one_commit_and_final(join: Join) -> None:
    world, way = await join()
    await world.open("s1")
    job = await world.running()
    way.calls.clear()
    end = Move(to="succeeded", fields={"result": b"42"})
    assert (await world.move(job, end, holder="s1")).outcome == "applied"
    assert way.made("create", "log/") == 1

    other, _ = await join()
    row = await other.row(job)
    assert (row.status, row.result) == ("succeeded", b"42")
    late = await other.move(job, Move(to="failed"), holder="s1")
    assert (late.outcome, (await world.row(job)).status) == ("stale", "succeeded")


async def test_whoever_comes_second_decides_again_on_what_the_first_did(join: Join) -> None:
    one, _ = await join()
    two, _ = await join()
    held = await one.submit(unique_key="u")
    [found] = await two.store.insert([two.new(unique_key="u")])
    assert (found.id, found.created) == (held.id, False)
    assert registry(two).counts.conflicts == 1


async def test_two_processes_never_claim_the_same_job(join: Join) -> None:
    one, _ = await join()
    two, _ = await join()
    await one.open("s1")
    await two.open("s2")
    await one.store.insert([one.new() for _ in range(20)])
    taken: list[Job] = []
    while len(taken) < 20:
        for got in await asyncio.gather(one.claim("s1", 3), two.claim("s2", 3)):
            taken += got
    assert len({job.id for job in taken}) == 20
    assert {job.session for job in taken} == {"s1", "s2"}


async def test_half_a_minute_of_lost_tries_is_given_up_naming_the_key_with_nothing_written(
    join: Join, clock: VirtualClock
) -> None:
    waits: list[float] = []

    async def sleep(wait_s: float) -> None:
        waits.append(wait_s)
        clock.advance(wait_s)

    quicker, _ = await join()
    world, way = await join(sleep=sleep, rng=random.Random(1))

    async def come_first(call: str, key: str) -> None:
        if call == "create" and key.startswith("log/"):
            await quicker.submit()

    way.before = come_first
    with pytest.raises(TooManyConflicts, match=r"at each of \d+ tries; nothing was written") as given_up:
        await world.submit()
    tries = len(waits) + 1
    assert (given_up.value.key, given_up.value.tries) == (f"log/{tries:012}", tries)
    # the pace that is kept beside others comes on top, and only after a commit of one's own
    assert all(wait_s <= min(2, 0.1 * 2**n) for n, wait_s in enumerate(waits))
    assert 30 <= sum(waits) < 32
    counts = registry(world).counts
    assert (counts.conflicts, counts.retries, counts.gave_up) == (tries, tries - 1, 1)

    way.before = None
    assert await ids_in(world.store) == await ids_in(quicker.store)
    assert len(await ids_in(world.store)) == tries
    await world.submit()
    await world.assert_sound()


async def test_who_stood_still_for_a_minute_in_his_first_try_has_more_of_them(join: Join, clock: VirtualClock) -> None:
    quicker, _ = await join()
    world, way = await join()
    lost: list[str] = []

    async def come_first(call: str, key: str) -> None:
        if call == "create" and key.startswith("log/") and len(lost) < 4:
            lost.append(key)
            clock.advance(60)
            await quicker.submit()

    way.before = come_first
    job = await world.submit()
    assert await ids_in(quicker.store) == await ids_in(world.store)
    assert job.id in await ids_in(quicker.store)
    assert registry(world).counts.conflicts == 4


async def test_a_store_that_is_away_refuses_a_submit_and_keeps_nothing_of_it(join: Join) -> None:
    world, way = await join()
    way.away = True
    with pytest.raises(StoreUnavailable, match="no job was submitted: memory: does not answer; submit again"):
        await world.store.insert([world.new()])
    way.away = False
    assert await ids_in(world.store) == []
    await world.submit()
    await world.assert_sound()


async def test_who_joined_while_others_had_their_turn_hears_of_an_outage_as_well(
    join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep: list[float] = []

    async def until_somebody_waits(wait_s: float) -> None:
        asleep.append(wait_s)
        while not registry(world)._base.commits._waiting:
            await asyncio.sleep(0.001)

    async def fail(call: str, key: str) -> None:
        if call == "create":
            raise StoreUnavailable("it does not answer")

    world, way = await join(sleep=until_somebody_waits)
    # as beside others that commit a lot
    monkeypatch.setattr(registry(world)._base.commits._pace, "wait_s", lambda _: 1.0)
    way.before = fail
    first = asyncio.ensure_future(world.store.insert([world.new()]))
    while not asleep:
        await asyncio.sleep(0.001)
    answers = await asyncio.gather(first, world.store.insert([world.new()]), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
    assert asleep == [1.0], "the second went with the first"
    way.before = None


def losing_answers(below: VersionedStore, *, can_be_asked: bool) -> object:
    """Writes the commit, and says that nobody knows."""

    async def after(call: str, key: str) -> None:
        if call != "create" or not key.startswith("log/"):
            return

        async def mine() -> str | None:
            if not can_be_asked:
                raise StoreUnavailable("it does not answer")
            found = await below.get(key)
            return found.version if found else None

        raise WriteUnsure("the answer was lost", mine)

    return after


async def test_a_commit_whose_answer_was_lost_is_found_to_be_made(join: Join, below: VersionedStore) -> None:
    world, way = await join()
    way.after = losing_answers(below, can_be_asked=True)  # type: ignore[assignment]
    job = await world.submit()
    way.after = None
    assert await ids_in(world.store) == [job.id]
    assert way.made("create", "log/") == 1


async def test_after_an_outage_in_the_middle_the_log_decides_whether_it_was_done(
    join: Join, below: VersionedStore
) -> None:
    world, way = await join()
    new = world.new()
    way.after = losing_answers(below, can_be_asked=False)  # type: ignore[assignment]
    with pytest.raises(StoreUnavailable, match="they may exist.*idempotency key"):
        await world.store.insert([new])
    way.after = None
    assert await ids_in(world.store) == [new.job.id]
    assert [result.created for result in await world.store.insert([new])] == [True], "it is known when it is sent again"
    assert await ids_in(world.store) == [new.job.id]
    await world.assert_sound()


async def test_a_claim_that_nobody_heard_of_is_given_back(join: Join, below: VersionedStore) -> None:
    world, way = await join()
    await world.open("s1")
    job = await world.submit()
    way.after = losing_answers(below, can_be_asked=False)  # type: ignore[assignment]
    with pytest.raises(StoreUnavailable):
        await world.claim()
    way.after = None
    async with world.store.wake(["queue:default"]) as wake:
        await world.row(job)
        assert await wake.wait(60)
    assert await world.story(job) == ["pending", "running", "pending"]
    [again] = await world.claim()
    assert (again.id, again.token) == (job.id, 2)


async def test_what_another_process_commits_wakes_who_waits_here(join: Join) -> None:
    one, _ = await join(poll_s=0.01)
    two, _ = await join()
    async with one.store.wake(["queue:default"]) as wake:
        await two.submit()
        assert await wake.wait(60)
    job = await two.submit(queue="b")
    async with one.store.wake([f"job:{job.id}"]) as wake:
        await two.move(job, "cancelled")
        assert await wake.wait(60)


class Small(Between):
    """A store whose values must be small, as those of DynamoDB."""

    most = 3_000

    async def create_if_absent(self, key: str, value: bytes) -> str | None:
        if len(value) > self.most:
            raise PayloadTooLarge("value", f"{len(value)} bytes are too many")
        return await super().create_if_absent(key, value)


async def test_what_is_too_much_for_one_commit_goes_one_by_one_and_only_what_is_too_large_itself_is_refused(
    join: Join, below: VersionedStore
) -> None:
    world, way = await join(way=Small(below))
    payloads = [random.Random(n).randbytes(size) for n, size in enumerate((1_000, 1_000, 9_000, 1_000))]

    async def until_all_wait(call: str, key: str) -> None:
        if key == "log/000000000001":
            while len(registry(world)._base.commits._waiting) < len(payloads):
                await asyncio.sleep(0.001)

    way.before = until_all_wait
    first = asyncio.ensure_future(world.submit())
    while not way.made("create", "log/"):
        await asyncio.sleep(0.001)
    answers = await asyncio.gather(
        *(world.store.insert([world.new(payload=payload)]) for payload in payloads), return_exceptions=True
    )
    await first
    way.before = None
    assert [isinstance(answer, PayloadTooLarge) for answer in answers] == [False, False, True, False]
    assert len(await ids_in(world.store)) == 4
    await world.assert_sound()
