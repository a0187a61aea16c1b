"""Retention takes only what is settled; deletion leaves a tombstone."""

from __future__ import annotations

from mainstay.lifecycle import Move
from mainstay.model import Job, Options
from mainstay.stores import InsertResult, Trimmed, TrimPolicy
from tests.conformance.world import World


async def settled(world: World, to: str = "succeeded", **fields: object) -> Job:
    job = await world.running(**fields)
    await world.move(job, to, holder="s1")
    return await world.row(job)


async def left(world: World, *jobs: Job) -> list[bool]:
    return [row is not None for row in await world.store.get([job.id for job in jobs])]


async def test_settled_jobs_go_by_age_and_status(world: World) -> None:
    await world.open("s1", lease_s=1e6)
    old, kept = await settled(world), await settled(world, "failed")
    world.clock.advance(100)
    young = await settled(world)

    policy = TrimPolicy(settled_before_ms={"succeeded": world.clock.now_ms() - 50_000})
    assert await world.store.trim(policy) == Trimmed(1, 0, 0, False)

    assert await left(world, old, kept, young) == [False, True, True]
    assert await world.store.events(old.id) == []
    assert (await world.store.trim(policy)).jobs == 0


async def test_age_counts_from_settling_not_from_submit(world: World) -> None:
    await world.open("s1", lease_s=1e6)
    job = await world.running()
    world.clock.advance(1000)
    await world.move(job, "succeeded", holder="s1")
    await world.store.trim(TrimPolicy(settled_before_ms={"succeeded": world.clock.now_ms() - 500_000}))
    assert await left(world, job) == [True]


async def test_unsettled_jobs_never_go(world: World) -> None:
    await world.open("s1", lease_s=1e6)
    jobs = [await world.running(), await world.submit(), await world.submit(delay_s=1)]
    stopping = await world.running()
    await world.move(stopping, "cancelling")
    world.clock.advance(10_000)
    everything = dict.fromkeys(("running", "pending", "scheduled", "cancelling"), world.clock.now_ms() + 1)
    policy = TrimPolicy(settled_before_ms=everything, keep_count=dict.fromkeys(everything, 0))
    assert (await world.store.trim(policy)).jobs == 0
    assert await left(world, *jobs, stopping) == [True] * 4


async def test_only_the_newest_so_many_stay(world: World) -> None:
    await world.open("s1")
    jobs = []
    for _ in range(4):
        jobs.append(await settled(world))
        world.clock.advance(1)
    other = await settled(world, "failed")
    assert (await world.store.trim(TrimPolicy(keep_count={"succeeded": 1}))).jobs == 3
    assert await left(world, *jobs, other) == [False, False, False, True, True]


async def test_a_job_with_its_own_retention_keeps_to_it(world: World) -> None:
    await world.open("s1", lease_s=1e6)
    brief = await settled(world, options=Options(keep_s=10))
    lasting = await settled(world, options=Options(keep_s=10_000))
    usual = await settled(world)
    world.clock.advance(100)
    await world.store.trim(TrimPolicy(settled_before_ms={"succeeded": world.clock.now_ms()}))
    assert await left(world, brief, lasting, usual) == [False, True, False]


async def test_one_call_takes_one_batch_and_says_that_there_is_more(world: World) -> None:
    await world.open("s1")
    for _ in range(5):
        await settled(world)
    policy = TrimPolicy(settled_before_ms={"succeeded": world.clock.now_ms() + 1}, batch=2)
    taken = []
    while True:
        trimmed = await world.store.trim(policy)
        taken.append(trimmed.jobs)
        if not trimmed.more:
            break
    assert sum(taken) == 5
    assert max(taken) == 2


async def test_a_parent_goes_with_its_units_and_only_when_all_are_settled(world: World) -> None:
    await world.open("s1")
    parent = await world.running()
    units = [await world.running(parent=parent.id, unit=name, queue="units") for name in ("a", "b")]
    await world.move(parent, "failed")
    await world.move(units[0], "succeeded", holder="s1")
    policy = TrimPolicy(settled_before_ms=dict.fromkeys(("failed", "succeeded"), world.clock.now_ms() + 1))
    await world.store.trim(policy)
    assert await left(world, parent, *units) == [True, True, True]

    await world.move(units[1], "failed", holder="s1")
    await world.store.trim(policy)

    assert await left(world, parent, *units) == [False, False, False]
    assert await world.store.events(units[0].id) == []


async def test_long_histories_are_shortened_and_stay_checkable(world: World) -> None:
    job, short = await world.submit(), await world.submit()
    for n in range(20):
        answer = await world.move(job, Move(to="pending", reason=f"remark {n}", flag="note"))
        job = answer.job or job

    assert (await world.store.trim(TrimPolicy(keep_events=12))).events == 9

    row = await world.row(job)
    events = await world.store.events(job.id)
    assert [event.seq for event in events] == list(range(10, 22))
    assert (row.version, row.trimmed_seq) == (job.version, 9)
    assert world.store.chain.first_break(row, events) is None
    assert len(await world.store.events(short.id)) == 1
    assert (await world.store.trim(TrimPolicy(keep_events=12))).events == 0
    assert (await world.move(row, "cancelled")).outcome == "applied"


async def test_expired_keys_go_and_others_outlive_their_job(world: World) -> None:
    await world.open("s1", lease_s=1e6)
    short = await settled(world, key="short", key_ttl_s=10)
    long = await settled(world, key="long", key_ttl_s=1000)
    world.clock.advance(60)

    trimmed = await world.store.trim(TrimPolicy(settled_before_ms={"succeeded": world.clock.now_ms()}))

    assert (trimmed.jobs, trimmed.keys) == (2, 1)
    assert await left(world, short, long) == [False, False]
    assert await world.store.insert([world.new(key="long")]) == [InsertResult(long.id, False, "key")]
    [made] = await world.store.insert([world.new(key="short")])
    assert made.created


async def test_a_deleted_job_leaves_a_tombstone(world: World) -> None:
    job, other = await world.submit(name="mail.send"), await world.submit()

    answers = await world.store.delete([job.id, "nobody"], actor="ann", reason="wrong address")

    assert answers == ["deleted", "missing"]
    assert await left(world, job, other) == [False, True]
    [stone] = await world.store.events(job.id)
    assert (stone.flag, stone.actor, stone.reason, stone.seq) == ("tombstone", "ann", "wrong address", job.version + 1)
    assert stone.data["name"] == "mail.send"
    assert await world.store.delete([job.id], actor="ann", reason="again") == ["missing"]
    assert len(await world.store.events(job.id)) == 1


async def test_a_claimed_job_is_not_deleted(world: World) -> None:
    await world.open("s1")
    held = await world.running()
    before = await world.dump()
    assert await world.store.delete([held.id], actor="ann", reason="now") == ["held"]
    assert await world.dump() == before


async def test_a_job_is_not_deleted_while_one_of_its_units_is_claimed(world: World) -> None:
    await world.open("s1")
    parent = await world.submit(queue="parents")
    unit = await world.running(parent=parent.id, unit="a")
    assert await world.store.delete([parent.id], actor="ann", reason="now") == ["held"]
    await world.move(unit, "succeeded", holder="s1")
    assert await world.store.delete([parent.id], actor="ann", reason="now") == ["deleted"]
    assert await left(world, parent, unit) == [False, False]


async def test_a_job_is_deleted_only_at_the_version_that_is_meant(world: World) -> None:
    seen, other = await world.submit(), await world.submit()
    await world.move(seen, "cancelled")
    before = await world.dump()
    meant = {seen.id: seen.version}
    assert await world.store.delete([seen.id, "nobody"], actor="ann", reason="now", versions=meant) == [
        "changed",
        "missing",
    ]
    assert await world.dump() == before

    meant = {seen.id: seen.version + 1}
    assert await world.store.delete([seen.id, other.id], actor="ann", reason="now", versions=meant) == [
        "deleted",
        "deleted",
    ]


async def test_a_job_at_another_version_is_changed_before_it_is_held(world: World) -> None:
    await world.open("s1")
    held = await world.running()
    for version, answer in ((held.version - 1, "changed"), (held.version, "held")):
        assert await world.store.delete([held.id], actor="ann", reason="now", versions={held.id: version}) == [answer]


async def test_the_units_of_a_settled_job_stay_when_that_is_at_another_version(world: World) -> None:
    await world.open("s1")
    parent = await world.submit(queue="parents")
    unit = await world.running(parent=parent.id, unit="a")
    await world.move(unit, "succeeded", holder="s1")
    await world.move(parent, "cancelled")
    meant = {parent.id: parent.version}
    assert await world.store.delete([parent.id], actor="ann", reason="now", versions=meant) == ["changed"]
    assert await left(world, parent, unit) == [True, True]


async def test_a_deleted_job_is_not_claimed_and_frees_its_unique_key(world: World) -> None:
    await world.open("s1")
    job = await world.submit(unique_key="u")
    await world.store.delete([job.id], actor="ann", reason="now")
    assert await world.claim() == []
    [made] = await world.store.insert([world.new(unique_key="u")])
    assert made.created
