"""The wire is cut at every step: nothing is lost, nothing doubled, and the store goes on by itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from mainstay.model import PLACE_QUEUE, Job, Session
from mainstay.stores import Key, NewJob
from servers import Proxy
from tests.conformance.test_placed_work import assignment, placed
from tests.conformance.world import World
from tests.stores.postgres.stands import Stores

Step = Callable[[World, int], Awaitable[None]]


@pytest.fixture
async def cut_off(proxy: Proxy, stores: Stores) -> AsyncIterator[World]:
    """A store behind the proxy, with one session."""
    world = await stores.open(proxy.url)
    await world.open("s1", lease_s=3600)
    yield world
    proxy.cut_after()
    await world.assert_sound()


async def submit_three(world: World, n: int) -> None:
    queue = f"q{n}"
    key = Key(scope="t", name=f"k{n}", content=b"c", until_ms=world.clock.now_ms() + 60_000)
    new = [world.new(queue=queue), world.new(queue=queue), world.new(queue=queue, key="k")]
    new[2] = type(new[2])(job=new[2].job, events=new[2].events, key=key)

    inserted = await world.store.insert(new)

    assert [(made.id, made.created) for made in inserted] == [(each.job.id, True) for each in new]
    assert [await world.story(each.job.id) for each in new] == [["pending"]] * 3


async def take_two(world: World, n: int) -> None:
    queue = f"q{n}"
    jobs = [(await world.submit(queue=queue)).id for _ in range(3)]

    claimed = await world.store.claim([queue], "s1", 2)

    rows = [job for job in await world.store.get(jobs) if job is not None]
    assert [job.id for job in claimed] == jobs[:2]
    assert [job.status for job in rows] == ["running", "running", "pending"]
    assert rows[:2] == claimed
    assert [job.token for job in claimed] == [1, 1]


async def settle(world: World, n: int) -> None:
    job = await world.running(queue=f"q{n}")

    answer = await world.move(job, "succeeded", holder="s1")

    assert answer.outcome in ("applied", "already_applied")
    assert await world.story(job) == ["pending", "running", "succeeded"]
    assert await world.store.refusals(job.id) == []


async def settle_and_spawn(world: World, n: int) -> None:
    job = await world.running(queue=f"q{n}")
    spawned = world.new(queue="spawned")

    answer = await world.move(job, "succeeded", holder="s1", spawn=(spawned,))

    assert answer.outcome in ("applied", "already_applied")
    assert await world.story(spawned.job.id) == ["pending"]


async def settle_one_that_is_waited_for(world: World, n: int) -> None:
    job = await world.running(queue=f"q{n}")
    waiting = await world.submit(after=[job])

    await world.move(job, "succeeded", holder="s1")

    assert (await world.row(waiting)).status == "pending"
    assert await world.story(waiting) == ["scheduled", "pending"]


async def keep_alive(world: World, n: int) -> None:
    [pulse] = await world.store.beat(["s1"])

    assert pulse.known


async def lead(world: World, n: int) -> None:
    held = await world.store.lead(f"l{n}", "s1", 60)

    assert (held.holder, held.epoch) == ("s1", 1)


async def tick(world: World, n: int) -> None:
    new = world.new(queue=f"q{n}")

    await world.store.tick("every", n, [new])

    assert await world.story(new.job.id) == ["pending"]


async def delete(world: World, n: int) -> None:
    job = await world.submit(queue=f"q{n}")

    await world.store.delete([job.id], actor="operator", reason="test")

    assert await world.store.get([job.id]) == [None]
    assert [event.flag for event in await world.store.events(job.id)] == ["tombstone"]


async def place_together(world: World, n: int) -> None:
    """Assign two units, and replace a third by a new one."""
    *given, replaced = units = await placed(world, 3)
    new = world.new(kind="node", queue=PLACE_QUEUE, parent=units[0].parent, unit="node/new")
    changes = [*(assignment(world, unit, "s1") for unit in given), world.change(replaced, "cancelled", spawn=(new,))]

    answers = await world.store.apply(changes, together=True)

    assert {answer.outcome for answer in answers} <= {"applied", "already_applied"}
    assert [await world.story(unit) for unit in given] == [["pending", "dispatched"]] * 2
    assert await world.story(replaced) == ["pending", "cancelled"]
    assert await world.story(new.job.id) == ["pending"]


async def assign_together(world: World, n: int) -> None:
    units = await placed(world, 2)

    answers = await world.store.apply([assignment(world, unit, "s1") for unit in units], together=True)

    assert {answer.outcome for answer in answers} <= {"applied", "already_applied"}
    assert [await world.story(unit) for unit in units] == [["pending", "dispatched"]] * 2
    assert {unit.id for unit in units} <= set((await world.store.beat(["s1"]))[0].assigned)


async def take_two_under_a_mark(world: World, n: int) -> None:
    queue = f"q{n}"
    jobs = [(await world.submit(queue=queue)).id for _ in range(3)]

    claimed = await world.store.claim([queue], "s1", 2, mark=f"m{n}")

    assert [job.id for job in claimed] == jobs[:2]
    assert await world.store.claim([queue], "s1", 2, mark=f"m{n}") == claimed
    assert [job.token for job in await world.store.get(jobs) if job is not None] == [1, 1, 0]


async def submit_as_leader(world: World, n: int) -> None:
    held = await world.store.lead(f"l{n}", "s1", 3600)
    new = world.new(queue=f"q{n}", unique_key=f"u{n}")

    [inserted] = await world.store.insert([new], lead=held)

    assert (inserted.id, inserted.created) == (new.job.id, True)
    assert await world.story(new.job.id) == ["pending"]


async def end_a_session_as_leader(world: World, n: int) -> None:
    held = await world.store.lead(f"l{n}", "s1", 3600)
    await world.store.open_session(Session(id=f"node{n}", standing=True))

    await world.store.close_session(f"node{n}", lead=held)

    assert not (await world.store.beat([f"node{n}"]))[0].known


STEPS: list[Step] = [
    submit_three,
    take_two,
    settle,
    settle_and_spawn,
    settle_one_that_is_waited_for,
    keep_alive,
    lead,
    tick,
    delete,
    place_together,
    assign_together,
    take_two_under_a_mark,
    submit_as_leader,
    end_a_session_as_leader,
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
@pytest.mark.parametrize("way", ["up", "down"])
async def test_a_call_that_is_cut_anywhere_has_the_same_end(cut_off: World, proxy: Proxy, step: Step, way: str) -> None:
    await step(cut_off, 0)
    cuts = proxy.cut_by_bytes

    for n, after in enumerate([0, 1, 5, 6, 20, 50, 100, 200, 400, 700, 1100], start=1):
        proxy.cut_after(**{way: after})
        await step(cut_off, n)

    assert proxy.cut_by_bytes > cuts


@pytest.mark.slow
@pytest.mark.timeout(900)  # seconds on an idle machine; a busy one must not fail it
async def test_a_fleet_on_a_wire_that_is_cut_again_and_again_does_everything_once(
    proxy: Proxy, postgres_url: str, stores: Stores
) -> None:
    worlds = [await stores.open(f"{proxy.url}&retries=100") for _ in range(3)]
    submitter = await stores.open(postgres_url)
    rng = random.Random(5)
    jobs: list[NewJob] = []
    done, cutting = 0, True

    async def submit() -> None:
        jobs.extend(some := [submitter.new() for _ in range(30)])
        await submitter.store.insert(some)

    async def work(world: World, session: str) -> None:
        nonlocal done
        await world.store.open_session(Session(id=session, lease_s=3600))
        while cutting or done < len(jobs):
            claimed = await world.store.claim(["default"], session, 3)
            answers = await world.store.apply([world.change(job, "succeeded", holder=session) for job in claimed])
            assert {answer.outcome for answer in answers} <= {"applied", "already_applied"}
            done += len(answers)

    async def cut() -> None:
        """Cut ten times, at whichever byte, and give them work until then."""
        nonlocal cutting
        for cuts in range(10):
            proxy.cut_after(**{rng.choice(["up", "down"]): rng.randrange(20_000)})
            while proxy.cut_by_bytes == cuts:
                if len(jobs) - done < 10:
                    await submit()
                await asyncio.sleep(0.01)
        cutting = False

    await submit()

    async with asyncio.TaskGroup() as everybody:
        everybody.create_task(cut())
        for n, world in enumerate(worlds):
            everybody.create_task(work(world, f"w{n}"))

    stories = [await submitter.story(new.job.id) for new in jobs]
    assert stories == [["pending", "running", "succeeded"]] * len(jobs)
    await submitter.assert_sound()


async def test_a_server_that_is_cut_off_and_says_nothing_is_given_up_in_time(proxy: Proxy, stores: Stores) -> None:
    world = await stores.open(f"{proxy.url}&connect_timeout=300ms")
    job: Job = await world.submit()
    proxy.stall()
    asking = asyncio.create_task(world.row(job))
    done, _ = await asyncio.wait([asking], timeout=0.2)
    assert not done

    proxy.cut()
    proxy.flow()

    assert await asking == job
