"""The data of a report: time at work, and errors that are alike."""

from __future__ import annotations

from mainstay.batch.report.model import left_out, took, troubles_of
from mainstay.lifecycle import Event
from mainstay.model import ErrorInfo, Job
from mainstay.testing import a_job


def event(at_ms: int, to: str) -> Event:
    fields = {"actor": "w", "reason": None, "token": 1, "flag": "", "details": None, "digest": b""}
    return Event(job_id=a_job().id, seq=at_ms, at_ms=at_ms, source=None, to=to, **fields)


def failed(unit: str, message: str, kind: str = "ValueError") -> Job:
    error = ErrorInfo(type=kind, code="error", message=message, retryable=True)
    return a_job("failed", parent=a_job().id, unit=unit, error=error)


def test_time_at_work_leaves_out_the_wait_for_a_resume_and_what_was_forced_later() -> None:
    first = [event(1_000, "pending"), event(2_000, "running"), event(3_000, "validating"), event(4_000, "partial")]
    again = [event(60_000, "pending"), event(61_000, "running"), event(61_500, "partial"), event(99_000, "succeeded")]

    assert took([], 5_000) == 0
    assert took(first[:2], 5_000) == 3.0
    assert took([*first, *again], 999_000) == 2.5


def test_errors_that_differ_in_numbers_only_are_one_kind_and_the_most_frequent_is_first() -> None:
    units = [
        failed("u1", "cannot open /tmp/1"),
        failed("u2", "seed 3 diverged at 0.25"),
        failed("u3", "seed 9 diverged at 7"),
    ]

    found = troubles_of([*units, failed("u4", "seed 9 diverged at 7", kind="OverflowError")])

    assert [(one.type, one.message, one.units, one.example) for one in found] == [
        ("ValueError", "seed 3 diverged at 0.25", 2, "u2"),
        ("ValueError", "cannot open /tmp/1", 1, "u1"),
        ("OverflowError", "seed 9 diverged at 7", 1, "u4"),
    ]


def test_a_unit_that_timed_out_without_an_error_is_told_by_its_reason() -> None:
    unit = a_job("timed_out", parent=a_job().id, unit="u1", reason="ran longer than 1m")

    (found,) = troubles_of([unit])

    assert (found.type, found.message) == ("timed_out", "ran longer than 1m")


def test_errors_that_differ_in_paths_digests_or_the_name_of_the_unit_are_one_kind() -> None:
    lacks = "{} ended without {}/a.bin (0f3c2b1a9d8e)"
    units = [failed(f"p={n}-s0", lacks.format(f"p={n}-s0", f"v1/study/{n:02x}/p={n}")) for n in range(4)]

    (found,) = troubles_of(units)

    assert (found.units, found.example) == (4, "p=0-s0")


def test_errors_that_are_not_listed_are_counted() -> None:
    troubles = troubles_of([failed(f"u{n}", "xy" * (n + 1)) for n in range(5)])

    assert left_out([]) is None
    assert str(left_out(troubles[3:])) == "2 more kinds of errors, of 2 units"
    assert str(left_out(troubles[4:])) == "1 more kind of errors, of 1 unit"
