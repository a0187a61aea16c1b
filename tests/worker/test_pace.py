"""How many jobs an engine holds beyond those it runs."""

from __future__ import annotations

import pytest

from mainstay.worker.pace import AHEAD_MS, ClaimPace


def fed(*, took_ms: float, gap_ms: float, waiting: int = 5, n: int = 500) -> ClaimPace:
    pace = ClaimPace(concurrency=10, batch=100)
    for number in range(n):
        pace.finished(took_ms, at_ms=number * gap_ms, waiting=waiting)
    return pace


@pytest.mark.parametrize("gap_ms", [0.5, 2.0, 10.0, 50.0])
def test_what_is_held_lasts_for_a_tenth_of_a_second_however_slowly_quick_jobs_come(gap_ms: float) -> None:
    assert fed(took_ms=0.1, gap_ms=gap_ms).ahead == pytest.approx(AHEAD_MS / gap_ms, abs=1)


def test_quick_jobs_that_come_quickly_are_held_by_the_batch() -> None:
    assert fed(took_ms=0.1, gap_ms=0.1).ahead == 300


def test_slow_jobs_are_not_held() -> None:
    assert fed(took_ms=5000, gap_ms=500).ahead == 0


def test_a_wait_for_the_store_is_no_sign_of_being_slow() -> None:
    pace = ClaimPace(concurrency=10, batch=100)
    at_ms = 0.0
    for _ in range(50):
        at_ms += 400  # a far store: nothing is held meanwhile
        for left in range(99, -1, -1):
            at_ms += 0.1
            pace.finished(0.1, at_ms=at_ms, waiting=left)
    assert pace.ahead == 300


def test_one_pause_among_many_changes_little() -> None:
    pace = fed(took_ms=0.1, gap_ms=0.1)
    pace.finished(0.1, at_ms=500 * 0.1 + 30, waiting=5)
    for number in range(50):
        pace.finished(0.1, at_ms=80 + number * 0.1, waiting=5)
    assert pace.ahead > 200
