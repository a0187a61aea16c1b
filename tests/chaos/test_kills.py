"""SIGKILL at random points, over and over: nothing accepted is lost, nothing is settled twice."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter

import pytest

from mainstay.control import JobRequest
from mainstay.control.check import check
from mainstay.control.rules.blame import ALONE_LOSSES
from tests.chaos.fleet import Fleet, kill, on_every_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

JOBS = 400
NAMES = ("quick", "naps", "in_thread", "in_child")


@pytest.mark.parametrize(
    ("fleet", "seed"), [("sqlite", 0), ("sqlite", 1), ("postgres", 2), ("redis", 3)], indirect=["fleet"]
)
async def test_every_accepted_job_settles_exactly_once_whoever_is_killed(fleet: Fleet, seed: int) -> None:
    """Supervisors, engines, children and the leader, in an order drawn from the seed, while jobs go through."""
    chance = random.Random(seed)
    fleet.worker(processes=2)
    fleet.worker()
    await fleet.ready(3)
    made = await fleet.control.jobs.submit_many(
        # a budget that outlasts the killing: these are not poison, they are unlucky
        [
            JobRequest(f"chaos_tasks.{NAMES[number % len(NAMES)]}", {"number": number}, {"crash_budget": 50})
            for number in range(JOBS)
        ]
    )
    killing = asyncio.create_task(_kill_for_a_while(fleet, chance))
    ids = [one.id for one in made]
    await killing
    jobs = [await fleet.settled(job_id, "5m") for job_id in ids]

    assert {job.status for job in jobs} == {"succeeded"}
    for job in jobs:
        assert (await fleet.path(job.id)).count("succeeded") == 1
        starts = fleet.traces(job.id, "start")
        assert len(starts) >= 1
        tokens = [start.token for start in starts]
        assert len(tokens) == len(set(tokens)), "a claim is run once; running again takes another claim"
    report = await check(fleet.control.store)
    assert report.clean, report.violations


async def _kill_for_a_while(fleet: Fleet, chance: random.Random) -> None:
    for _ in range(8):
        await asyncio.sleep(chance.uniform(0.1, 1.2))
        worker = chance.choice([worker for worker in fleet.workers if worker.alive])
        victims = {"supervisor": [worker.pid], "engine": worker.engines, "child": worker.children}
        kind = chance.choice([kind for kind, pids in victims.items() if pids])
        kill(chance.choice(victims[kind]), signal.SIGKILL)
        if kind == "supervisor":
            worker.process.wait()
            fleet.worker(processes=chance.choice([1, 2]))


@on_every_store
async def test_a_kill_repeats_no_more_jobs_than_the_concurrency_of_what_was_killed(fleet: Fleet) -> None:
    """Jobs that take no time: an engine goes through thousands a second, and stores their ends in batches."""
    concurrency = 5
    for victim in ("engine", "supervisor", "engine"):
        made = await fleet.control.jobs.submit_many(
            [JobRequest("chaos_tasks.quick", {"number": n}, {"crash_budget": 50}) for n in range(1500)]
        )
        ids = {one.id for one in made}
        if not fleet.workers or not fleet.workers[-1].alive:
            fleet.worker(concurrency=concurrency)
        worker = fleet.workers[-1]
        while sum(trace.job_id in ids for trace in fleet.traces()) < 400:
            await asyncio.sleep(0.005)
        kill(worker.pid if victim == "supervisor" else worker.engines[0], signal.SIGKILL)
        if victim == "supervisor":
            worker.process.wait()
            fleet.worker(concurrency=concurrency)

        jobs = [await fleet.settled(one.id, "5m") for one in made]

        assert {job.status for job in jobs} == {"succeeded"}
        begun = Counter(trace.job_id for trace in fleet.traces(what="start"))
        now = {job_id for job_id in ids if begun[job_id] > 1}
        assert len(now) <= concurrency, f"{len(now)} jobs ran twice after the kill of one {victim}"
        assert max(begun[job_id] for job_id in ids) <= 2


@on_every_store
async def test_exactly_the_poison_ones_end_in_quarantine(fleet: Fleet) -> None:
    """Hundreds of jobs, four of which kill their process, claimed ahead in batches: no bystander is blamed for long."""
    poison = {40, 140, 240, 399}
    made = await fleet.control.jobs.submit_many(
        [
            JobRequest(f"chaos_tasks.{'poison' if number in poison else 'quick'}", {"number": number})
            for number in range(400)
        ]
    )
    fleet.worker(processes=2)

    jobs = [await fleet.settled(one.id, "5m") for one in made]

    ended = {number: job.status for number, job in enumerate(jobs)}
    given_up = {number for number, status in ended.items() if status != "succeeded"}
    assert given_up == poison, "".join([await fleet.story(jobs[number].id) for number in given_up - poison])
    assert {ended[number] for number in poison} == {"quarantined"}
    for number in poison:
        assert jobs[number].crashes == 3
        assert len(fleet.traces(jobs[number].id, "start")) >= 3, await fleet.story(jobs[number].id)
    # whoever ran beside one was suspected once, ran alone then, and was cleared
    assert all(jobs[number].crashes <= 1 for number in ended if number not in poison)


@on_every_store
async def test_a_job_that_is_lost_with_its_worker_four_times_is_not_blamed(fleet: Fleet) -> None:
    """Once more than its crash budget: one on the loop and one in a child, each killed with its whole worker."""
    names = ("waits", "child_waits")
    ids = [(await fleet.control.jobs.submit(f"chaos_tasks.{name}", {"gate_name": "go"})).id for name in names]
    for time in range(1, 5):
        worker = fleet.worker(concurrency=4)
        for job_id in ids:
            await fleet.traced(job_id, times=time)
            while (await fleet.control.jobs.get(job_id)).started_ms is None:
                await asyncio.sleep(0.01)
        worker.kill()
    fleet.open_gate("go")
    fleet.worker(concurrency=4)

    jobs = [await fleet.settled(job_id) for job_id in ids]

    for job in jobs:
        counted = (job.status, job.crashes, job.failures, job.losses)
        assert counted == ("succeeded", 0, 0, 4), await fleet.story(job.id)
    report = await check(fleet.control.store)
    assert report.clean, report.violations


async def test_a_job_that_kills_its_whole_worker_ends_in_quarantine_and_its_neighbours_do_not(fleet: Fleet) -> None:
    """Two engines; the neighbours are lost with it time and again, until they or it run alone."""
    asked = JobRequest("chaos_tasks.climbs", {"steps": 15, "pause_s": 0.1})
    neighbours = [one.id for one in await fleet.control.jobs.submit_many([asked] * 3)]
    poison = (await fleet.control.jobs.submit("chaos_tasks.kills_its_worker", {})).id
    jobs = await fleet.control.jobs.get_many([poison, *neighbours])
    while any(job.settled_ms is None for job in jobs):
        # each killed worker is followed by another, as a service manager would have it
        if not fleet.workers or not fleet.workers[-1].alive:
            assert len(fleet.workers) < 3 * ALONE_LOSSES, await fleet.story(poison)
            fleet.worker(processes=2, concurrency=3)
        await asyncio.sleep(0.02)
        jobs = await fleet.control.jobs.get_many([poison, *neighbours])

    given_up, *others = jobs
    assert (given_up.status, given_up.crashes) == ("quarantined", 3), await fleet.story(poison)
    assert len(fleet.traces(poison, "start")) <= ALONE_LOSSES + 3, await fleet.story(poison)
    for job in others:
        assert (job.status, job.crashes) == ("succeeded", 0), await fleet.story(job.id)


@on_every_store
async def test_a_drain_loses_nothing_and_counts_no_failure(fleet: Fleet) -> None:
    worker = fleet.worker(concurrency=4, grace="4s")
    await fleet.ready()
    long = (await fleet.control.jobs.submit("chaos_tasks.waits", {"gate_name": "go"})).id
    await fleet.traced(long)
    made = await fleet.control.jobs.submit_many([JobRequest("chaos_tasks.naps", {"number": n}) for n in range(200)])
    await fleet.traced(made[0].id)

    code = worker.stop()  # `waits` does not end within its grace, and each of the others does
    after = await fleet.control.jobs.get(long)
    fleet.open_gate("go")
    fleet.worker()
    jobs = [await fleet.settled(one.id) for one in made]

    assert code == 0
    assert (after.status, after.releases, after.failures, after.crashes) == ("pending", 1, 0, 0)
    assert {(job.status, job.failures, job.crashes) for job in jobs} == {("succeeded", 0, 0)}
    assert all(len(fleet.traces(one.id, "start")) == 1 for one in made), "what had begun was finished, not repeated"
    assert (await fleet.settled(long)).status == "succeeded"
