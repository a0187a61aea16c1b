"""The harness measures what it says, and Mainstay goes through all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench import report
from bench.queues import latency, start_rate, together
from servers.programs import program

ROOT = Path(__file__).parents[2]
S = 1_000_000_000


def _rate(starts: list[int], pids: list[int]) -> float:
    return start_rate(together(starts, pids))


def test_the_rate_of_one_process_is_from_its_first_start_to_its_last() -> None:
    assert _rate([10 * S, 11 * S, 12 * S], [1, 1, 1]) == pytest.approx(1.0)


def test_the_rate_of_two_processes_leaves_out_the_time_in_which_one_was_not_there() -> None:
    # the second boots at 4 s; from then on each starts a job a second, and both end at 9 s
    first, second = [at * S for at in range(10)], [at * S for at in range(4, 10)]

    rate = _rate([*first, *second], [1] * 10 + [2] * 6)

    assert rate == pytest.approx(11 / 5)


def test_a_process_that_came_when_all_was_over_does_not_shrink_the_window_to_nothing() -> None:
    assert _rate([S * at for at in range(11)], [1] * 10 + [2]) == pytest.approx(1.0)


def test_jobs_that_never_started_do_not_count_in_the_rate() -> None:
    assert _rate([S, 0, 2 * S], [1, 0, 1]) == pytest.approx(1.0)
    assert _rate([0, 0], [0, 0]) == 0.0


def test_latency_tells_the_middle_the_end_and_what_never_came() -> None:
    found = latency([*map(float, range(1, 101)), None])

    assert (found.samples, found.p50, found.p99, found.worst, found.lost) == (100, 51.0, 100.0, 100.0, 1)


def test_latency_of_nothing_is_only_what_never_came() -> None:
    found = latency([None, None])

    assert (found.samples, found.lost) == (0, 2)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_quick_run_takes_mainstay_through_every_scenario(store: str, tmp_path: Path) -> None:
    if store == "postgresql":
        program(store, "initdb")  # installed, or said to be missing
    # the watch ends when the job is run again, which on a busy machine takes longer than the watch of a quick run
    options = ["--systems", f"mainstay-{store}", "--watch", "120", "--results", str(tmp_path)]
    run = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--only", "queues", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    (us,) = report.load(tmp_path / "queues.json").systems
    assert us.rates.submit_one
    assert us.rates.submit_bulk
    assert us.idle is not None
    assert us.load is not None
    assert us.kill is not None
    far = us.far.one if us.far else []
    assert bool(far) == (store != "sqlite")
    for drain in (*us.rates.one, *us.rates.two, *far):
        assert (drain.lost, drain.repeated) == (0, 0)
        assert drain.committed is not None
        assert drain.rss_mb > 0
    assert (us.idle.lost, us.load.lost) == (0, 0)
    assert us.kill.rerun_s is not None
