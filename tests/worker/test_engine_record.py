"""What a supervisor thinks of an engine, in made-up time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from mainstay.worker.engine_record import EngineRecord
from mainstay.worker.messages import Pulsed
from mainstay.worker.recorder import Recorder

JOB, OTHER = "1" * 36, "2" * 36


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder.create(4)
    yield made
    made.close()


@pytest.fixture
def member(recorder: Recorder) -> EngineRecord:
    made = EngineRecord(0.0)
    made.process = SimpleNamespace(recorder=recorder, pid=7, send=lambda message: None)  # type: ignore[assignment]
    made.session = "s1"
    return made


async def test_a_job_past_its_deadline_is_stuck_only_after_the_engine_had_a_second_to_end_it(
    member: EngineRecord, recorder: Recorder
) -> None:
    recorder.begin(0, JOB, token=1, started_ms=0, deadline_ms=1_000)
    recorder.begin(1, OTHER, token=1, started_ms=0, deadline_ms=0)

    assert member.stuck(now_ms=1_000, loop_s=0.0) == ()
    # the machine slept for an hour: the deadline is long past, the engine has just woken up
    assert member.stuck(now_ms=3_600_000, loop_s=0.1) == ()
    assert member.stuck(now_ms=3_600_900, loop_s=1.0) == ()
    assert [entry.job_id for entry in member.stuck(now_ms=3_601_100, loop_s=1.2)] == [JOB]


async def test_a_deadline_that_was_moved_in_time_starts_the_second_anew(
    member: EngineRecord, recorder: Recorder
) -> None:
    recorder.begin(0, JOB, token=1, started_ms=0, deadline_ms=1_000)
    assert member.stuck(now_ms=1_500, loop_s=0.0) == ()
    recorder.move_deadline(0, 2_000)
    assert member.stuck(now_ms=1_900, loop_s=0.9) == ()
    assert member.stuck(now_ms=2_100, loop_s=1.1) == ()
    assert len(member.stuck(now_ms=3_200, loop_s=2.2)) == 1


async def test_a_job_that_was_cancelled_by_force_and_still_runs_is_stuck(
    member: EngineRecord, recorder: Recorder
) -> None:
    recorder.begin(0, JOB, token=1, started_ms=0, deadline_ms=0)
    recorder.begin(1, OTHER, token=1, started_ms=0, deadline_ms=0)

    member.pulsed(Pulsed(session="s1", known=True, cancelling=(JOB, OTHER)))
    assert member.stuck(now_ms=0, loop_s=0.0) == (), "it is asked, and has its grace"
    recorder.end(1)  # this one has stopped
    member.pulsed(Pulsed(session="s1", known=True))

    assert member.stuck(now_ms=0, loop_s=10.0) == ()
    member.pulsed(Pulsed(session="s1", known=True))
    assert [entry.job_id for entry in member.stuck(now_ms=0, loop_s=11.1)] == [JOB]


async def test_a_cancel_that_its_engine_confirms_in_time_leaves_nobody_stuck(
    member: EngineRecord, recorder: Recorder
) -> None:
    recorder.begin(0, JOB, token=1, started_ms=0, deadline_ms=0)
    member.pulsed(Pulsed(session="s1", known=True, cancelling=(JOB,)))
    member.pulsed(Pulsed(session="s1", known=True))
    assert member.stuck(now_ms=0, loop_s=0.0) == ()

    recorder.end(0)

    assert member.stuck(now_ms=0, loop_s=5.0) == ()


async def test_a_start_is_told_to_the_store_once(member: EngineRecord, recorder: Recorder) -> None:
    recorder.begin(0, JOB, token=3, started_ms=5, deadline_ms=0)
    (mark,) = member.marks()
    assert (mark.job_id, mark.session, mark.token, mark.started_ms) == (JOB, "s1", 3, 5)
    assert member.marks() == [mark], "not told before the store has it"

    member.marked([mark])

    assert member.marks() == []
    recorder.begin(0, JOB, token=4, started_ms=9, deadline_ms=0)
    assert [mark.token for mark in member.marks()] == [4]


async def test_a_lost_session_is_not_beaten_for_until_there_is_another(
    member: EngineRecord, recorder: Recorder
) -> None:
    recorder.begin(0, JOB, token=3, started_ms=5, deadline_ms=0)
    member.pulsed(Pulsed(session="an older one", known=False))
    assert member.session == "s1"

    member.pulsed(Pulsed(session="s1", known=False))

    assert member.session is None
    assert member.marks() == []


async def test_a_loop_that_stands_still_while_it_has_work_is_told_once(
    member: EngineRecord, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        member.warn_if_blocked()  # idle: nothing has to turn
    assert caplog.text == ""
    recorder.begin(0, JOB, token=3, started_ms=5, deadline_ms=0)
    for _ in range(10):
        recorder.tick()
        member.warn_if_blocked()
    assert caplog.text == ""

    with caplog.at_level(logging.WARNING):
        for _ in range(10):
            member.warn_if_blocked()

    assert caplog.text.count("loop is blocked") == 1
    assert JOB in caplog.text
