"""How fast a batch is, and how that is told."""

from __future__ import annotations

import msgspec
import pytest

from mainstay.batch import BatchStatus, Spec, UnitCounts
from mainstay.batch.cli.follow import exit_code_of
from mainstay.batch.cli.progress import BatchProgress, UnitRate
from mainstay.batch.cli.view import progress_data, progress_line
from mainstay.cli.target import Where
from mainstay.control import Plan
from mainstay.model import Options
from mainstay.testing import a_job

NOON_MS = 1_699_963_200_000


def seen(*, rate: float | None, left_s: float | None) -> BatchProgress:
    spec = Spec(
        study="lab.sir", code="1", outputs="memory:", files={"r": "r"}, sets=10, units=1000, expected=1000,
        manifest="", plan=Plan(options=Options()),
    )  # fmt: skip
    job = a_job("running", kind="batch", token=1)
    status = BatchStatus(
        job=job, spec=spec, planned=True, units=UnitCounts(made=1000, succeeded=250, running=4, failed=1)
    )
    return BatchProgress(now_ms=NOON_MS, status=status, rate=rate, left_s=left_s)


def test_the_rate_is_that_of_the_last_seconds_and_not_of_the_whole_run() -> None:
    rate = UnitRate(10)

    slow = [rate.at(second, second) for second in range(60)]
    fast = [rate.at(60 + second, 60 + second * 5) for second in range(30)]

    assert slow[-1] == 1.0
    assert fast[-1] == 5.0


def test_the_rate_is_not_known_before_something_was_done_and_begins_anew_with_another_group() -> None:
    rate = UnitRate(10)

    assert [rate.at(0, 0), rate.at(1, 0), rate.at(2, 4)] == [None, None, 2.0]
    assert [rate.at(3, 0), rate.at(4, 1)] == [None, 1.0]


@pytest.mark.parametrize(
    ("rate", "left_s", "told"),
    [
        (None, None, "running: 250 of 1,000 units, 1 failed"),
        (12.25, 0.2, "running: 250 of 1,000 units, 1 failed, 12.2/s, 1s left"),
        (12.25, 61.0, "running: 250 of 1,000 units, 1 failed, 12.2/s, 1m1s left"),
        (0.1, 7500.0, "running: 250 of 1,000 units, 1 failed, 0.1/s, 2h5m left, until 14:05Z"),
    ],
)
def test_what_is_left_is_told_as_a_time_and_of_long_runs_with_their_end(
    rate: float | None, left_s: float | None, told: str
) -> None:
    assert progress_line(seen(rate=rate, left_s=left_s)) == told


def test_the_data_has_rate_rest_and_end_and_no_surprise_for_json() -> None:
    data = progress_data(seen(rate=2.0, left_s=10.0), Where())

    assert (data["units_per_s"], data["left_s"], data["ends_ms"]) == (2.0, 10.0, NOON_MS + 10_000)
    assert msgspec.json.decode(msgspec.json.encode(data))["units"]["done"] == 250


@pytest.mark.parametrize(
    ("status", "code"), [("succeeded", 0), ("partial", 3), ("failed", 1), ("timed_out", 1), ("cancelled", 1)]
)
def test_the_exit_code_says_how_a_batch_ended(status: str, code: int) -> None:
    assert exit_code_of(status) == code
