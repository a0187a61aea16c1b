from __future__ import annotations

import msgspec
import pytest

from mainstay.control import Outcome
from mainstay.model import ErrorInfo, Options, Progress, RetryPolicy, expiry, rank_of
from mainstay.testing import a_job

NOW = 1_700_000_000_000


def test_a_point_of_priority_is_worth_its_boost_of_waiting() -> None:
    minute = 60_000
    urgent = rank_of(NOW + 3 * minute, priority=3, boost_ms=minute)

    assert urgent == rank_of(NOW, priority=0, boost_ms=minute)
    assert urgent < rank_of(NOW + 3 * minute, priority=2, boost_ms=minute)


@pytest.mark.parametrize(
    ("options", "fields", "after_s"),
    [
        (Options(run_timeout_s=60, grace_s=5), {}, 65),
        (Options(run_timeout_s=60, grace_s=5), {"extra_ms": 30_000}, 95),
        (Options(run_timeout_s=60, stall_timeout_s=20, grace_s=5), {}, 25),
        (Options(run_timeout_s=60, stall_timeout_s=20, grace_s=5), {"progress_ms": NOW + 10_000}, 35),
        (Options(run_timeout_s=60, stall_timeout_s=20, grace_s=5), {"progress_ms": NOW - 10_000}, 25),
        (Options(run_timeout_s=60, stall_timeout_s=20, grace_s=5), {"progress_ms": NOW + 50_000}, 65),
        (Options(run_timeout_s=None, stall_timeout_s=20, grace_s=0), {}, 20),
    ],
    ids=["run", "granted more", "stall", "progress", "progress of an older attempt", "run ends first", "stall only"],
)
def test_a_started_job_overruns_at_the_first_of_its_limits_plus_grace(
    options: Options, fields: dict[str, int], after_s: int
) -> None:
    job = a_job("running", options=options, started_ms=NOW, session="s-1", **fields)

    assert expiry(job) == NOW + after_s * 1000


def test_a_job_that_is_left_to_its_units_has_no_grace() -> None:
    job = a_job("running", options=Options(run_timeout_s=60, grace_s=5), started_ms=NOW, session=None)

    assert expiry(job) == NOW + 60_000


def test_what_has_not_started_or_has_no_limit_does_not_overrun() -> None:
    assert expiry(a_job("running", claimed_ms=NOW)) is None
    assert expiry(a_job("running", started_ms=NOW, options=Options(run_timeout_s=None))) is None


def test_options_written_by_an_older_version_get_todays_defaults() -> None:
    shortened = msgspec.msgpack.encode([[5], 60.0])

    read = msgspec.msgpack.decode(shortened, type=Options)

    assert read == Options(retry=RetryPolicy(retries=5), run_timeout_s=60.0)


def test_a_row_with_a_parent_is_a_unit() -> None:
    assert a_job(parent=a_job().id).is_unit
    assert not a_job().is_unit


def test_a_job_in_a_log_tells_which_one_it_is_and_nothing_of_what_it_holds() -> None:
    secret = "hunter2"
    job = a_job(
        "running",
        name="mail.send",
        token=3,
        session="w1.ab",
        payload=secret.encode(),
        result=secret.encode(),
        error=ErrorInfo(type="E", message=secret, traceback=secret),
        reason=secret,
        key=secret,
        options=Options(tags=(secret,), metadata={"password": secret}),
        progress=Progress(done=1, message=secret),
        checkpoint=secret.encode(),
    )

    shown = f"Job(id={job.id!r}, name='mail.send', status='running', version={job.version}, token=3, session='w1.ab')"
    assert repr(job) == str(job) == shown
    assert shown in repr(Outcome("applied", job))
    assert secret not in "".join(str(part) for part in job.__rich_repr__())


@pytest.mark.parametrize(
    ("counts", "attempt"),
    [
        ({}, 1),
        ({"failures": 1, "starts": 1}, 2),
        ({"crashes": 1, "failures": 1, "starts": 2}, 3),
        ({"losses": 1, "starts": 1}, 2),
        ({"losses": 1, "starts": 0}, 1),
        ({"losses": 2, "starts": 2, "failures": 1}, 3),
        ({"releases": 3, "starts": 3}, 1),
    ],
    ids=["first", "failed", "crashed", "lost while it ran", "lost before it began", "lost once of two", "snoozed"],
)
def test_an_attempt_that_was_lost_with_its_worker_counts_if_it_had_begun(counts: dict[str, int], attempt: int) -> None:
    assert a_job("running", **counts).attempt == attempt
