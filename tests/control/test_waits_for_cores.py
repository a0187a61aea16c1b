"""Jobs that were given back until placement has cores for them."""

from __future__ import annotations

import msgspec
import pytest

from mainstay.control.check import check
from mainstay.control.explain import explained
from mainstay.errors import InvalidTransition, StaleClaim
from mainstay.lifecycle import Move
from mainstay.model import PLACE_MS, Job, Settings
from tests.control.conftest import Bench


async def waiting(bench: Bench, **options: object) -> Job:
    job = await bench.claimed(**options)
    return await bench.worker.drivers.await_placement(job)


async def place(bench: Bench, job: Job) -> Job:
    """Its leader has cores for it: its due time is now."""
    moves = (Move(to="pending", reason="placed", fields={"due_ms": bench.clock.now_ms()}, flag="note"),)
    return await bench.control.drivers.act(job.id, lambda *_: moves, actor="leader")


async def test_a_job_that_waits_for_cores_is_not_claimed_and_keeps_its_turn(bench: Bench) -> None:
    first = await bench.claimed()
    bench.clock.advance(60)
    waits = await bench.worker.drivers.await_placement(first)
    session = await bench.session()

    assert (waits.status, waits.due_ms, waits.awaits_cores) == ("pending", PLACE_MS, True)
    assert (waits.reason, waits.rank) == ("waits for cores", first.rank)
    assert (waits.releases, waits.starts, waits.session) == (0, 0, None)
    bench.clock.advance(3600)
    assert await bench.worker.claims.claim(["default"], session.id, 1) == []
    assert await bench.store.due(["default"]) is None, "no clock makes it ready"

    now = await place(bench, waits)

    assert (now.rank, now.awaits_cores) == (first.rank, False)
    (again,) = await bench.worker.claims.claim(["default"], session.id, 1)
    assert (again.id, again.token) == (first.id, 2)


async def test_a_check_finds_nothing_wrong_with_a_job_that_waits_for_cores(bench: Bench) -> None:
    _, _, plain = [await waiting(bench, priority=priority) for priority in (-5, 5, 0)]
    bench.clock.advance(60)
    await place(bench, plain)

    assert (await check(bench.store)).violations == ()


async def test_the_queue_deadline_ends_the_wait_for_cores(bench: Bench) -> None:
    job = await waiting(bench, queue_deadline="30s")
    bench.clock.advance(31)
    await bench.control.sweeper.sweep()

    found = await bench.control.jobs.get(job.id)
    assert (found.status, found.error and found.error.code) == ("timed_out", "queue_deadline")


async def test_a_job_that_waits_for_cores_can_be_cancelled(bench: Bench) -> None:
    job = await waiting(bench)
    assert (await bench.control.operations.cancel(job.id, actor="ann", reason="no need")).status == "cancelled"


async def test_an_operator_cannot_send_a_job_back_to_its_queue_while_it_waits_for_cores(bench: Bench) -> None:
    job = await waiting(bench)
    with pytest.raises(InvalidTransition, match="it waits for cores of nodes; wait for them, or start a node"):
        await bench.control.operations.retry(job.id, actor="ann")


async def test_a_retry_after_the_wait_timed_out_keeps_the_turn(bench: Bench) -> None:
    job = await waiting(bench, queue_deadline="30s")
    bench.clock.advance(31)
    await bench.control.sweeper.sweep()
    again = await bench.control.operations.retry(job.id, actor="ann")

    assert (again.due_ms, again.rank) == (bench.clock.now_ms(), job.rank)


async def test_the_priority_of_a_job_that_waits_for_cores_changes_its_turn_among_the_waiting(bench: Bench) -> None:
    job = await waiting(bench)
    bench.clock.advance(60)
    changed = await bench.control.operations.set_priority(job.id, 2, actor="ann")

    assert changed.rank == job.rank - 2 * 1000 * round(Settings().priority_boost_s)
    assert changed.due_ms == PLACE_MS


async def test_a_lost_claim_waits_for_nothing(bench: Bench) -> None:
    job = await bench.claimed()
    await bench.control.operations.force(job.id, "pending", actor="ann", reason="to see")
    with pytest.raises(StaleClaim):
        await bench.worker.drivers.await_placement(job)


async def test_the_wait_for_cores_is_never_shown_as_a_date(bench: Bench) -> None:
    job = await waiting(bench)
    told = msgspec.json.encode(await explained(bench.store, job.id)).decode()

    assert "It is pending and waits for cores of nodes." in told
    assert "2999" not in told
    assert "3000" not in told
