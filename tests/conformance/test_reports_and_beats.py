"""What a holder says between moves."""

from __future__ import annotations

from mainstay.lifecycle import Move
from mainstay.model import Job, Options, Progress
from mainstay.stores import ClaimReport, Pulse
from tests.conformance.world import World


def started(job: Job, at_ms: int, session: str = "s1") -> ClaimReport:
    return ClaimReport(job_id=job.id, session=session, token=job.token, started_ms=at_ms)


def progressed(job: Job, done: float, session: str = "s1") -> ClaimReport:
    return ClaimReport(job_id=job.id, session=session, token=job.token, progress=Progress(done=done, total=10))


async def test_a_start_is_counted_once_per_token(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    now = world.clock.now_ms()

    assert await world.store.report([started(job, now), started(job, now + 5)]) == [True, True]
    assert await world.store.report([started(job, now + 9)]) == [True]

    row = await world.row(job)
    assert (row.starts, row.started_ms) == (1, now)

    await world.move(row, "failed", "pending")
    [again] = await world.claim(queues=["own"])
    await world.store.report([started(again, now + 20)])
    assert (await world.row(job)).starts == 2


async def test_a_report_changes_no_version_and_writes_no_event(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    await world.store.report([started(job, 1), progressed(job, 4)])
    row = await world.row(job)
    assert (row.version, row.head, row.changed_ms) == (job.version, job.head, job.changed_ms)
    assert await world.story(job) == ["pending", "running"]


async def test_values_that_are_not_reported_stay(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    await world.store.report([ClaimReport(job_id=job.id, session="s1", token=1, checkpoint=b"one")])
    world.clock.advance(1)
    await world.store.report([progressed(job, 4)])
    row = await world.row(job)
    assert (row.checkpoint, row.progress) == (b"one", Progress(done=4, total=10))
    assert row.progress_ms == world.clock.now_ms()


async def test_a_report_under_a_token_that_is_no_longer_held_is_refused(world: World) -> None:
    await world.open("s1", "s2")
    ghost, alive, settled = await world.running(), await world.running(queue="b"), await world.running(queue="c")
    await world.move(ghost, "timed_out", "pending")
    await world.claim("s2", queues=["own"])
    await world.move(settled, "succeeded", holder="s1")
    before = await world.row(ghost)

    reports = [progressed(ghost, 1), progressed(alive, 2), progressed(settled, 3), progressed(alive, 4, session="s2")]
    never = ClaimReport(job_id="nobody", session="s1", token=1, checkpoint=b"x")

    assert await world.store.report([*reports, never]) == [False, True, False, False, False]
    assert await world.row(ghost) == before
    assert (await world.row(alive)).progress == Progress(done=2, total=10)


async def test_the_run_timeout_counts_from_the_start_plus_grace(world: World) -> None:
    await world.open("s1", lease_s=1e6)
    job = await world.running(options=Options(run_timeout_s=60, grace_s=5))
    assert job.expires_ms is None
    world.clock.advance(30)

    await world.store.report([started(job, world.clock.now_ms())])

    assert (await world.row(job)).expires_ms == world.clock.now_ms() + 65_000
    world.clock.advance(64)
    assert await world.store.overdue() == []
    world.clock.advance(2)
    [late] = await world.store.overdue()
    assert (late.job.id, late.cause) == (job.id, "time")


async def test_progress_puts_a_stall_off(world: World) -> None:
    await world.open("s1", lease_s=1e6)
    job = await world.running(options=Options(run_timeout_s=None, stall_timeout_s=10, grace_s=1))
    await world.store.report([started(job, world.clock.now_ms())])
    world.clock.advance(8)

    await world.store.report([progressed(job, 1)])

    assert (await world.row(job)).expires_ms == world.clock.now_ms() + 11_000
    world.clock.advance(10)
    assert await world.store.overdue() == []
    world.clock.advance(2)
    assert [late.job.id for late in await world.store.overdue()] == [job.id]


async def test_a_checkpoint_alone_is_no_progress(world: World) -> None:
    await world.open("s1", lease_s=1e6)
    job = await world.running(options=Options(stall_timeout_s=10))
    await world.store.report([started(job, world.clock.now_ms())])
    expires_ms = (await world.row(job)).expires_ms
    world.clock.advance(5)
    await world.store.report([ClaimReport(job_id=job.id, session="s1", token=1, checkpoint=b"x")])
    row = await world.row(job)
    assert (row.expires_ms, row.progress_ms) == (expires_ms, None)


async def test_progress_does_not_put_off_the_end_of_a_cancel(world: World) -> None:
    await world.open("s1", lease_s=1e6)
    job = await world.running()
    await world.store.report([started(job, world.clock.now_ms())])
    ends = world.clock.now_ms() + 10_000
    await world.move(await world.row(job), Move(to="cancelling", fields={"expires_ms": ends}))
    world.clock.advance(9)
    assert await world.store.report([progressed(job, 1)]) == [True]
    assert (await world.row(job)).expires_ms == ends


async def test_a_note_does_not_take_back_the_time_that_progress_gained(world: World) -> None:
    await world.open("s1", lease_s=1e6)
    job = await world.running(options=Options(run_timeout_s=None, stall_timeout_s=10, grace_s=0))
    await world.store.report([started(job, world.clock.now_ms())])
    seen = await world.row(job)
    world.clock.advance(5)
    await world.store.report([progressed(job, 1)])

    await world.move(seen, Move(to="running", reason="looks fine", flag="note"))

    assert (await world.row(job)).expires_ms == world.clock.now_ms() + 10_000


async def test_beats_keep_sessions_alive_for_longer_than_a_lease(world: World) -> None:
    await world.open("s1", "s2")
    for _ in range(5):
        world.clock.advance(6)
        pulses = await world.store.beat(["s1", "s2"])
        assert pulses == [Pulse(session="s1", known=True), Pulse(session="s2", known=True)]
        assert await world.store.overdue() == []


async def test_a_beat_carries_reports(world: World) -> None:
    await world.open("s1")
    job = await world.running()
    await world.store.beat(["s1"], [progressed(job, 7)])
    assert (await world.row(job)).progress == Progress(done=7, total=10)


async def test_a_beat_tells_what_is_asked_to_stop(world: World) -> None:
    await world.open("s1", "s2")
    stopping, _going, other = [await world.running(session) for session in ("s1", "s1", "s2")]
    await world.move(stopping, "cancelling")
    await world.move(other, "cancelling")
    [pulse] = await world.store.beat(["s1"])
    assert pulse.cancelling == (stopping.id,)


async def test_a_session_that_was_never_opened_is_not_known(world: World) -> None:
    await world.open("s1")
    pulses = await world.store.beat(["nobody", "s1"])
    assert [pulse.known for pulse in pulses] == [False, True]


async def test_nobody_takes_a_job_away_without_having_seen_its_last_progress(world: World) -> None:
    await world.open("s1", lease_s=1e6)
    job = await world.running(options=Options(run_timeout_s=None, stall_timeout_s=10, grace_s=0))
    await world.store.report([started(job, world.clock.now_ms())])
    seen = await world.row(job)
    world.clock.advance(20)
    await world.store.report([progressed(job, 1)])

    assert (await world.move(seen, "timed_out", "pending", actor="sweeper")).outcome == "conflict"

    assert (await world.row(job)).status == "running"
    again = await world.row(job)
    assert (await world.move(again, "timed_out", "pending", actor="sweeper")).outcome == "applied"
