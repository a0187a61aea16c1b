"""A session is given only jobs whose task it offers; the others wait for a session that has it."""

from __future__ import annotations

from mainstay.model import Job, Lane, Offer, QueueSettings, Session
from tests.conformance.world import World


async def offers(world: World, session: str, *tasks: str, queues: tuple[str, ...] = ("default",)) -> None:
    offer = Offer(queues=queues, tasks={task: {} for task in tasks})
    await world.store.open_session(Session(id=session, lease_s=1e6, offer=offer))


def names(jobs: list[Job]) -> list[str]:
    return [job.name for job in jobs]


async def test_a_session_says_what_it_offers(world: World) -> None:
    offer = Offer(queues=("mail", "default"), tasks={"a": {"queue": "mail", "retries": 5}, "batch:b": {}}, cores=6)
    await world.store.open_session(Session(id="s1", worker="w", offer=offer))
    await world.open("s2")

    found = {session.id: session for session in await world.store.sessions()}

    assert found["s1"].offer == offer
    assert (found["s1"].serves("mail"), found["s1"].serves("other")) == (True, False)
    assert (found["s1"].knows("batch", "b"), found["s1"].knows("task", "b")) == (True, False)
    assert (found["s2"].offer, found["s2"].serves("mail"), found["s2"].knows("task", "a")) == (None, None, None)


async def test_an_open_session_can_make_another_offer(world: World) -> None:
    await offers(world, "s1", "a")
    await world.submit(name="b")
    assert await world.claim("s1") == []

    await offers(world, "s1", "a", "b")

    assert names(await world.claim("s1")) == ["b"]


async def test_a_job_goes_to_the_session_that_has_its_task(world: World) -> None:
    await offers(world, "knows-a", "a")
    await offers(world, "knows-b", "b")
    submitted = await world.submit(name="b")

    assert await world.claim("knows-a", 5) == []
    [job] = await world.claim("knows-b", 5)

    assert (job.id, job.session) == (submitted.id, "knows-b")
    assert await world.story(job) == ["pending", "running"]
    assert (job.releases, job.version) == (0, 2)
    await world.assert_sound()


async def test_jobs_of_an_unknown_task_do_not_hide_those_behind_them(world: World) -> None:
    await offers(world, "knows-a", "a")
    for _ in range(30):
        await world.submit(name="b")
    await world.submit(name="a")

    assert names(await world.claim("knows-a", 2)) == ["a"]

    assert (await world.store.stats()).routed == {"default": {"b": 30}}
    assert (await world.store.stats()).queues["default"].counts == {"pending": 30, "running": 1}
    await world.assert_sound()


async def test_a_job_that_no_session_can_run_waits_until_one_joins(world: World) -> None:
    await offers(world, "knows-a", "a")
    job = await world.submit(name="b")
    assert await world.claim("knows-a") == []
    assert (await world.row(job)).lane == Lane.ROUTED
    assert (await world.row(job)).status == "pending"

    await offers(world, "newer", "a", "b")

    assert [found.id for found in await world.claim("newer")] == [job.id]
    assert (await world.store.stats()).routed == {}


async def test_routed_jobs_come_back_in_their_order(world: World) -> None:
    await offers(world, "knows-a", "a")
    await offers(world, "knows-b", "a", "b")
    low = await world.submit(name="b", priority=-10)
    high = await world.submit(name="b", priority=10)
    assert await world.claim("knows-a", 5) == []
    between = await world.submit(name="a")

    taken = [job.id for _ in range(3) for job in await world.claim("knows-b", 1)]

    assert taken == [high.id, between.id, low.id]
    await world.assert_sound()


async def test_kinds_do_not_share_their_names(world: World) -> None:
    await offers(world, "tasks", "study")
    await offers(world, "batches", "batch:study")
    await world.submit(name="study", kind="batch")

    assert await world.claim("tasks") == []
    assert names(await world.claim("batches")) == ["study"]


async def test_a_session_that_does_not_say_what_it_offers_is_given_everything(world: World) -> None:
    await offers(world, "knows-a", "a")
    await world.submit(name="b")
    assert await world.claim("knows-a") == []
    await world.open("silent")

    assert names(await world.claim("silent")) == ["b"]


async def test_nothing_is_routed_past_a_session_that_does_not_say_what_it_offers(world: World) -> None:
    """It may be of an older version, which never looks for routed jobs."""
    await world.open("silent")
    await offers(world, "knows-a", "a")
    await world.submit(name="b")

    assert names(await world.claim("knows-a")) == ["b"]


async def test_a_routed_job_can_be_cancelled(world: World) -> None:
    await offers(world, "knows-a", "a")
    await offers(world, "knows-b", "b")
    job = await world.submit(name="b")
    assert await world.claim("knows-a") == []

    await world.move(await world.row(job), "cancelled")

    assert await world.claim("knows-b") == []
    assert (await world.store.stats()).routed == {}
    await world.assert_sound()


async def test_a_paused_queue_keeps_its_routed_jobs(world: World) -> None:
    await offers(world, "knows-a", "a")
    await offers(world, "knows-b", "b")
    await world.submit(name="b")
    assert await world.claim("knows-a") == []
    await world.store.set_queue(QueueSettings(name="default", paused=True))
    assert await world.claim("knows-b") == []
    await world.store.set_queue(QueueSettings(name="default"))
    assert names(await world.claim("knows-b")) == ["b"]


async def test_a_slot_that_a_routed_job_was_counted_for_is_free(world: World) -> None:
    await world.store.set_limit("k", 1)
    await offers(world, "knows-a", "a")
    await offers(world, "knows-b", "b")
    await world.submit(name="b", concurrency_key="k")
    await world.submit(name="a", concurrency_key="k")

    assert names(await world.claim("knows-a", 5)) == ["a"]
    assert await world.claim("knows-b", 5) == []
    await world.assert_sound()


async def test_a_sleeper_that_has_the_task_is_woken(world: World) -> None:
    await offers(world, "knows-a", "a")
    await offers(world, "knows-b", "b")
    await world.submit(name="b")
    async with world.store.wake(["queue:default"]) as wake:
        assert await world.claim("knows-a") == []
        assert await wake.wait(60)
