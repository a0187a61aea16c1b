"""The suite of fan-in compares the receivers of statistics, and finds where ours is late."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import fan_in_report
from bench.fan_in import FanInReport, FanInRound, FanInSizes, OurFanIn, TheirFanIn, interval_s


def _ours(reporters: int, per_reporter_ms: float = 0.1, lag_ms: float = 20.0) -> OurFanIn:
    return OurFanIn(
        reporters=reporters,
        per_reporter_ms=per_reporter_ms,
        core=0.1,
        lag_ms=lag_ms,
        lag_p99_ms=5.0,
        windows=4_000,
        late=0,
    )


def _report(*ratios: float, limits: tuple[OurFanIn, ...] = ()) -> FanInReport:
    rounds = [
        FanInRound(
            reporters=200,
            interval_s=0.5,
            mainstay=_ours(200, ratio),
            locust=TheirFanIn(reporters=200, per_reporter_ms=1.0, core=0.2),
        )
        for ratio in ratios
    ]
    return FanInReport(at="2026-01-01", machine={}, versions={}, sizes=FanInSizes(), rounds=rounds, limits=list(limits))


@pytest.mark.parametrize(("ratios", "met"), [((0.05, 0.1, 3.0), "met"), ((0.05, 0.11, 0.2), "missed")])
def test_the_goal_is_for_the_median_of_the_rounds(ratios: tuple[float, ...], met: str) -> None:
    (compared,) = fan_in_report.sections(_report(*ratios))

    assert compared.lines == [
        [
            "200",
            "0.5",
            f"{ratios[1]:.3f}",
            "1.000",
            f"{ratios[1]:.2f}x ({ratios[0]:.2f} to {ratios[2]:.2f})",
            f"at most 0.1x: {met}",
        ]
    ]


@pytest.mark.parametrize(
    ("lags_ms", "words"),
    [
        ((20.0, 150.0), "the event loop is not later than 200 ms with 400 reporters"),
        ((20.0, 450.0), "the event loop is later than 200 ms with 400 reporters, and not with 200"),
        ((450.0,), "the event loop is later than 200 ms with 200 reporters"),
    ],
)
def test_the_limit_is_where_the_event_loop_is_late(lags_ms: tuple[float, ...], words: str) -> None:
    limits = [_ours(200 * (at + 1), lag_ms=lag_ms) for at, lag_ms in enumerate(lags_ms)]
    report = _report(limits=tuple(limits))

    assert fan_in_report.limit_of(report) == words
    (limit,) = fan_in_report.sections(report)
    assert limit.title == f"Fan-in: the limit ({words})"


def test_a_report_is_kept_with_its_goals(tmp_path: Path) -> None:
    report = _report(0.05, limits=(_ours(200),))

    fan_in_report.save(report, tmp_path / "kept.json")

    assert fan_in_report.load(tmp_path / "kept.json") == report
    assert b'"met": true' in (tmp_path / "kept.json").read_bytes()


def test_both_sides_report_as_often_as_our_slices_do_when_there_are_as_many() -> None:
    assert [interval_s(reporters) for reporters in (20, 200, 1_000)] == [0.2, 0.5, 1.0]
