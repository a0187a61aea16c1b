"""What the claimer of a load test on nodes does next, from what the leader before it has saved."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainstay.errors import BadArguments
from mainstay.load.fleet.record import FleetRecord, GoRecord
from mainstay.load.fleet.saved_run import SavedRun, ended_round, next_step, saved_run_of, stored_slices
from mainstay.load.fleet.spec import SLICE, SliceCall, slice_id, slice_unit
from mainstay.model import LEAD_QUEUE, Job
from mainstay.testing import a_job

JOB = "018bcfe5-6800-7000-8000-000000000001"
GO = GoRecord(go=1, workflows=["Shop"], wall=1.0, tokens=[1], nodes=["n"])


def a_slice(number: int = 0, *, round_: int = 1, status: str = "running") -> Job:
    call = SliceCall(job=JOB, round=round_, number=number, of=2, cores=1)
    return a_job(
        status,
        id=slice_id(JOB, round_, number),
        parent=JOB,
        name=SLICE,
        unit=slice_unit(round_, number),
        payload=msgspec.msgpack.encode(call),
        settled_ms=None if status in ("pending", "dispatched", "running") else 5,
    )


def saved(**fields: Any) -> SavedRun:
    return SavedRun(**{"summary": msgspec.Raw(b"\xc0"), "fleet": FleetRecord(round=1), **fields})


def test_a_job_without_slices_waits_for_cores() -> None:
    assert next_step(None, stored_slices([])) == "place"


def test_open_slices_are_led() -> None:
    assert next_step(None, stored_slices([a_slice(0), a_slice(1, status="pending")])) == "lead"


def test_slices_that_have_ended_are_led_on_if_there_was_load() -> None:
    ended = stored_slices([a_slice(0, status="succeeded"), a_slice(1, status="failed")])

    assert next_step(saved(fleet=FleetRecord(round=1, gos=[GO])), ended) == "lead"
    assert next_step(saved(), ended) == "place"
    assert next_step(None, ended) == "place"


def test_only_the_newest_round_counts() -> None:
    rows = [a_slice(0, round_=1), a_slice(1, round_=2), a_slice(0, round_=2)]

    assert [(each.call.round, each.call.number) for each in stored_slices(rows)] == [(2, 0), (2, 1)]
    ended = stored_slices([a_slice(0, round_=2, status="cancelled")])
    assert next_step(saved(fleet=FleetRecord(round=1, gos=[GO])), ended) == "place"


def test_a_run_that_is_over_only_ends_its_job() -> None:
    assert next_step(saved(over=True), stored_slices([a_slice(0)])) == "end"


def test_what_an_earlier_attempt_has_saved_is_not_continued() -> None:
    checkpoint = msgspec.msgpack.encode(saved(failures=0, over=True))

    assert saved_run_of(a_job("running", queue=LEAD_QUEUE, checkpoint=checkpoint)) is not None
    assert saved_run_of(a_job("running", queue=LEAD_QUEUE, checkpoint=checkpoint, failures=1)) is None
    assert saved_run_of(a_job("running", queue=LEAD_QUEUE)) is None


def test_slices_that_were_stopped_to_start_the_run_again_are_not_led_by_a_successor() -> None:
    again = saved(fleet=FleetRecord(round=0), restarts=1, ended_round=1)
    job = a_job("running", queue=LEAD_QUEUE, checkpoint=msgspec.msgpack.encode(again))
    first, second = stored_slices([a_slice(0)]), stored_slices([a_slice(0), a_slice(0, round_=2)])

    assert ended_round(job) == 1
    assert next_step(saved_run_of(job), first, ended=1) == "place"
    assert next_step(saved_run_of(job), second, ended=1) == "lead"


def test_slices_that_an_earlier_attempt_has_led_are_not_led_by_the_next_one() -> None:
    checkpoint = msgspec.msgpack.encode(saved(failures=0, fleet=FleetRecord(round=1, gos=[GO])))
    job = a_job("running", queue=LEAD_QUEUE, checkpoint=checkpoint, failures=1)

    assert next_step(saved_run_of(job), stored_slices([a_slice(0)]), ended=ended_round(job)) == "place"


def test_a_damaged_checkpoint_is_named() -> None:
    with pytest.raises(BadArguments, match="what the leader of the run has saved cannot be read"):
        saved_run_of(a_job("running", checkpoint=b"\xff"))
