"""When a generator is the bottleneck, the result says so."""

from __future__ import annotations

import pytest

from mainstay.load.stats.model import Health, StepStats, Trust, Window
from mainstay.load.stats.trust import TrustWatch
from tests.load.stats.made import FIRST, step, window


def run(*healths: Health, took: float = 0.01, arrivals: int = 0, tenths: int = 10) -> Trust:
    """Each health for a second."""
    watch = TrustWatch()
    for second, health in enumerate(healths):
        for tenth in range(tenths):
            at = window(second * 10 + tenth, step(ok=(took,)), arrivals=arrivals)
            at.health = {1: health}
            watch.add(at)
    return watch.finish()


FINE = Health(lag=0.01, cpu=0.5, files=100, files_limit=1024)
LATE = Health(lag=0.12, cpu=0.5)
BUSY = Health(cpu=0.97)


def test_a_generator_that_is_well_is_trusted() -> None:
    assert run(*[FINE] * 10) == Trust(ok=True, reasons=[])


def test_a_loop_that_is_late_is_told_with_how_late_and_how_often() -> None:
    assert run(FINE, LATE, LATE, FINE).reasons == [
        (
            "the loop of process 1 came up to 120 ms late, in 2 of 4 s: times include that; add --processes or "
            "machines, or do less in the steps"
        )
    ]


def test_a_loop_that_is_late_does_not_matter_to_slow_calls() -> None:
    assert run(LATE, LATE, took=5.0).ok
    assert not run(LATE, LATE, took=0.5).ok


def test_a_single_late_second_of_a_long_run_does_not_matter() -> None:
    assert not run(*[FINE] * 90, LATE, tenths=1).ok
    assert run(*[FINE] * 250, LATE, tenths=1).ok


def test_a_full_core_is_told_from_the_third_second_on() -> None:
    assert run(BUSY, BUSY, FINE, BUSY, BUSY).ok
    assert run(FINE, *[BUSY] * 12).reasons == [
        (
            "process 1 used 97 % of its core for 12 s: add --processes or machines; calls waited inside the generator, "
            "and their times include that"
        )
    ]


def test_an_open_model_does_not_hide_its_own_waiting() -> None:
    assert run(*[BUSY] * 3, arrivals=1).reasons == [
        "process 1 used 97 % of its core for 3 s: add --processes or machines"
    ]


def test_a_core_is_judged_by_whole_seconds() -> None:
    watch = TrustWatch()
    for at in range(50):
        watch.add(Window(bucket=FIRST + at, health={0: Health(cpu=1.0 if at % 2 else 0.7)}))
    assert watch.finish().ok


def test_it_is_told_while_the_run_goes_on() -> None:
    watch = TrustWatch()
    told = []
    for at in range(40):
        watch.add(Window(bucket=FIRST + at, health={0: BUSY}))
        told.append(watch.trust().ok)
    assert told.index(False) == 30


@pytest.mark.parametrize(("files", "ok"), [(921, True), (922, False)])
def test_files_near_their_limit_are_told(files: int, ok: bool) -> None:
    trust = run(Health(files=files, files_limit=1024))
    assert trust.ok is ok
    if not ok:
        assert trust.reasons == [
            (
                "process 1 had 922 of at most 1,024 files open: raise the limit (ulimit -n 65536), or use fewer users "
                "in a process"
            )
        ]


def test_files_that_ran_out_are_told() -> None:
    watch = TrustWatch()
    watch.add(window(0, StepStats(workflow="Shop", step="browse", errors={"files": 3, "timeout": 1})))
    assert watch.trust().reasons == [
        (
            "3 calls failed because the system would open no more files: raise the limit (ulimit -n 65536), or use "
            "fewer users in a process"
        )
    ]


def test_dropped_arrivals_are_told_at_once() -> None:
    watch = TrustWatch()
    watch.add(window(0, arrivals=100, dropped=0))
    assert watch.trust().ok
    watch.add(window(1, arrivals=100, dropped=1))
    assert watch.trust().reasons[0].startswith("1 of 200 arrivals were dropped")
