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
#: of a tenth of a second
KEPT = Health(cpu=0.5, waited=0.03)
NEARLY = Health(cpu=0.5, waited=0.0199)
THROTTLED = Health(cpu=0.5, waited=0.03, throttled=0.05)


def test_a_generator_that_is_well_is_trusted() -> None:
    assert run(*[FINE] * 10) == Trust(ok=True, reasons=[])


def test_a_loop_that_is_late_is_told_with_how_late_and_how_often() -> None:
    assert run(FINE, LATE, LATE, FINE).reasons == [
        (
            "the event loop of process 1 was up to 120 ms late, in 2 of 4 s: times include that; add --processes or "
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


@pytest.mark.parametrize(("cpu", "ok"), [(0.94, False), (0.7, True)])
def test_a_run_of_less_than_three_seconds_is_judged_by_all_of_it(cpu: float, ok: bool) -> None:
    trust = run(Health(cpu=1.0), Health(cpu=cpu), arrivals=1)
    assert trust.ok is ok
    if not ok:
        assert trust.reasons == ["process 1 used 97 % of its core for 2 s: add --processes or machines"]


def test_what_is_over_at_once_is_its_start_and_is_not_judged_by_the_core() -> None:
    assert run(Health(cpu=1.0, waited=0.09), tenths=4).ok
    assert not run(BUSY, tenths=5).ok
    assert not run(KEPT, tenths=5).ok


def test_a_process_that_others_keep_from_running_is_told_with_what_to_do() -> None:
    assert run(FINE, FINE, KEPT, KEPT, KEPT, FINE).reasons == [
        (
            "process 1 was ready to run but had no core for 30 % of 3 s, and times include that: other programs use "
            "the cores of this machine; end them, use no more --processes than there are free cores, or test from "
            "another machine"
        )
    ]


def test_a_quota_is_told_as_what_it_is() -> None:
    (reason,) = run(*[THROTTLED] * 3).reasons
    assert reason.endswith(
        "its control group had used up its CPU time; raise its quota (cpu.max), or use fewer --processes"
    )


def test_a_short_wait_for_a_core_does_not_matter() -> None:
    assert run(*[NEARLY] * 5).ok
    assert run(FINE, FINE, KEPT, FINE, FINE, KEPT).ok


def test_a_wait_in_a_run_of_less_than_three_seconds_is_judged_by_all_of_it() -> None:
    assert "no core for 30 % of 1 s" in run(KEPT).reasons[0]
    assert run(KEPT, FINE).ok


def test_a_loop_that_was_away_is_judged_by_all_the_time_it_was() -> None:
    watch = TrustWatch()
    for at in range(60):
        # of a second each, told in the first tenth of it
        health = {} if at % 10 else {0: Health(waited=0.15)}
        watch.add(Window(bucket=FIRST + at, health=health))
    assert watch.finish().ok


def test_windows_of_a_second_are_judged_like_those_of_a_tenth() -> None:
    watch = TrustWatch()
    for at in range(4):
        watch.add(Window(bucket=FIRST + at * 10, width=10, health={0: Health(waited=0.3)}))
    assert "no core for 30 % of 3 s" in watch.finish().reasons[0]


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


def on_nodes(*seconds: dict[int, Health], arrivals: int = 1) -> list[str]:
    """The reasons of a run whose processes have these healths, each for a second."""
    watch = TrustWatch()
    for second, health in enumerate(seconds):
        at = window(second * 10, arrivals=arrivals)
        at.width, at.health = 10, health
        watch.add(at)
    return watch.finish().reasons


def test_a_node_that_had_too_little_cpu_is_named_with_advice_for_nodes() -> None:
    fine, busy = Health(node="n1", cpu=0.5), Health(node="n2", cpu=0.97)

    assert on_nodes(*[{0: fine, 1: fine, 2: busy, 3: Health(node="n2", cpu=0.5)}] * 12) == [
        "node n2: process 2 used 97 % of its core for 12 s: add --cores or --nodes"
    ]
    assert on_nodes(*[{0: fine, 1: fine, 2: busy, 3: Health(node="n2", cpu=0.92)}] * 12) == [
        "node n2: 2 of 2 processes used up to 97 % of their cores for up to 12 s: add --cores or --nodes"
    ]


def test_a_node_whose_event_loops_were_late_is_named() -> None:
    late, later = Health(node="n2", lag=0.06), Health(node="n2", lag=0.12)

    assert on_nodes({0: late, 1: later, 2: Health(node="n1")}, {0: late, 1: Health(node="n2")}) == [
        (
            "node n2: the event loops of 2 of 2 processes were up to 120 ms late, in up to 2 of 2 s: times include "
            "that; add --cores or --nodes, or do less in the steps"
        )
    ]


@pytest.mark.parametrize(
    ("throttled", "advice"),
    [
        (0.0, "other programs use the cores of this machine; end them, or let the node join with fewer --cores"),
        (
            0.3,
            (
                "its control group had used up its CPU time; raise its quota (cpu.max), or let the node join with "
                "fewer --cores"
            ),
        ),
    ],
)
def test_a_node_whose_processes_had_no_core_is_named_with_what_to_do_there(throttled: float, advice: str) -> None:
    health = Health(node="n2", waited=0.3, throttled=throttled)

    assert on_nodes(*[{4: health, 5: health}] * 3) == [
        (
            "node n2: 2 of 2 processes were ready to run but had no core for up to 30 % of 3 s, and times include "
            f"that: {advice}"
        )
    ]


def test_a_node_that_was_short_of_files_is_named() -> None:
    assert on_nodes({3: Health(node="n2", files=1000, files_limit=1024)}) == [
        (
            "node n2: process 3 had 1,000 of at most 1,024 files open: raise the limit there (ulimit -n 65536), or use "
            "fewer users in a process"
        )
    ]


def test_a_replacement_is_not_blamed_for_the_node_that_it_replaced() -> None:
    lost = [{0: Health(node="n1", cpu=0.97)}] * 3
    replaced = [{0: Health(node="n2", cpu=0.5)}] * 3

    assert on_nodes(*lost, *replaced) == ["node n1: process 0 used 97 % of its core for 3 s: add --cores or --nodes"]


def test_of_very_many_nodes_all_are_named_and_some_described() -> None:
    health = {number: Health(node=f"n{number:02}", cpu=0.97) for number in range(10)}

    reasons = on_nodes(*[health] * 3)

    assert len(reasons) == 9
    assert reasons[7].startswith("node n07: process 7 used 97 %")
    assert reasons[8] == "2 more had such problems: node n08, node n09"


def test_files_that_ran_out_are_told() -> None:
    watch = TrustWatch()
    watch.add(window(0, StepStats(workflow="Shop", step="browse", errors={"files": 3, "timeout": 1})))
    assert watch.trust().reasons == [
        (
            "3 calls failed because the system opened no more files: raise the limit (ulimit -n 65536), or use "
            "fewer users in a process"
        )
    ]


def test_arrivals_that_nobody_could_begin_are_told_with_what_kept_the_users_from_it() -> None:
    watch = TrustWatch()
    examples = {"ValueError": "ValueError: of a step", "on_start ValueError": "ValueError: no account"}
    watch.add(Window(bucket=0, arrivals=100, dropped=50, unbegun=50, examples=examples))
    assert watch.trust().reasons == [
        (
            "50 of 100 arrivals found no user that could begin (on_start raised ValueError: no account): the target "
            "did not get the requested load"
        )
    ]

    watch.add(Window(bucket=1, arrivals=100, dropped=3, unbegun=1))
    first, second = watch.trust().reasons
    assert first.startswith("51 of 200 arrivals found no user")
    assert second.startswith("2 of 200 arrivals were dropped, because too many")


def test_dropped_arrivals_are_told_at_once() -> None:
    watch = TrustWatch()
    watch.add(window(0, arrivals=100, dropped=0))
    assert watch.trust().ok
    watch.add(window(1, arrivals=100, dropped=1))
    assert watch.trust().reasons[0].startswith("1 of 200 arrivals were dropped")
