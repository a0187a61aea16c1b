"""Progress and checkpoints: what a worker says must be readable when the job is claimed again."""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import Any

import pytest

from mainstay.control import Control
from mainstay.errors import InvalidInput, PayloadTooLarge
from mainstay.model import Progress, Settings
from mainstay.stores import ClaimReport

from .conftest import Bench


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"done": float("nan")}, "progress.done"),
        ({"done": float("inf")}, "progress.done"),
        ({"done": "abc"}, "progress.done"),
        ({"done": True}, "progress.done"),
        ({"done": 10**400}, "progress.done"),
        ({"done": 1, "total": float("-inf")}, "progress.total"),
        ({"done": 1, "message": 7}, "progress.message"),
        ({"done": 1, "message": "file \udcff"}, "progress.message"),
        ({"done": 1, "message": "x" * 1001}, "progress.message"),
    ],
)
async def test_progress_that_could_not_be_read_back_is_refused_by_name(
    bench: Bench, said: dict[str, Any], field: str
) -> None:
    job = await bench.running()

    with pytest.raises(InvalidInput) as refused:
        bench.worker.claims.progress(job, **said)
    assert refused.value.field == field
    with pytest.raises(InvalidInput):
        await bench.worker.claims.extend(job, progress=Progress(**said))

    assert (await bench.control.jobs.get(job.id)).progress is None


async def test_a_checkpoint_is_bounded_like_a_payload(bench: Bench) -> None:
    job = await bench.running()
    control = Control(bench.store, settings=Settings(payload_limit=10))

    with pytest.raises(PayloadTooLarge, match="checkpoint: 11 bytes are more than the limit of 10"):
        control.claims.progress(job, 1, checkpoint=b"x" * 11)
    with pytest.raises(InvalidInput, match="checkpoint: must be bytes, not str"):
        control.claims.progress(job, 1, checkpoint="text")  # type: ignore[arg-type]

    assert await control.claims.report([control.claims.progress(job, 1, 2, "half\nway", checkpoint=b"x" * 10)]) == [
        True
    ]
    row = await bench.control.jobs.get(job.id)
    assert (row.progress, row.checkpoint) == (Progress(done=1, total=2, message="half\nway"), b"x" * 10)


class Fraction(float):
    """As numpy's are: a float by descent, and not one that can be encoded."""


class Step(IntEnum):
    HALF = 1
    ALL = 2


class Label(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ({"done": Fraction(0.5), "total": Fraction(1)}, Progress(done=0.5, total=1.0)),
        ({"done": Step.HALF, "total": Step.ALL, "message": Label("half")}, Progress(done=1, total=2, message="half")),
        ({"done": 2**70}, Progress(done=float(2**70))),
        ({"done": 2**62}, Progress(done=2**62)),
    ],
)
async def test_numbers_and_texts_of_types_made_from_the_plain_ones_are_stored_as_plain(
    bench: Bench, said: dict[str, Any], stored: Progress
) -> None:
    job = await bench.running()

    report = bench.worker.claims.progress(job, **said)
    assert {type(part) for part in (report.progress.done, report.progress.total)} <= {int, float, type(None)}  # type: ignore[union-attr]
    assert await bench.worker.claims.report([report]) == [True]

    assert (await bench.control.jobs.get(job.id)).progress == stored


def _bare(job_id: str, session: str | None, **said: Any) -> ClaimReport:
    """A report as another process may have made it, without being looked at."""
    return ClaimReport(job_id=job_id, session=session or "", token=1, **said)


async def test_a_report_that_cannot_be_stored_is_refused_by_the_name_of_its_job_and_spoils_no_other(
    bench: Bench,
) -> None:
    control = Control(bench.store, settings=Settings(payload_limit=10))
    bad, good = await bench.running(), await bench.running()

    with pytest.raises(PayloadTooLarge, match=f"checkpoint: job {bad.id}: 11 bytes are more than the limit of 10"):
        await control.claims.report(
            [
                _bare(bad.id, bad.session, checkpoint=b"x" * 11),
                _bare(good.id, good.session, progress=Progress(done=Fraction(1))),
            ]
        )

    assert (await bench.control.jobs.get(bad.id)).checkpoint is None
    assert (await bench.control.jobs.get(good.id)).progress == Progress(done=1.0)


async def test_a_report_that_cannot_be_stored_does_not_stop_the_beat_it_rides_on(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = await bench.running(), await bench.running()
    reports = [
        _bare(bad.id, bad.session, progress=Progress(done=float("nan"))),
        _bare(good.id, good.session, progress=Progress(done=1)),
    ]

    with caplog.at_level(logging.WARNING):
        pulses = await bench.worker.claims.beat([str(bad.session), str(good.session)], reports)

    assert [pulse.known for pulse in pulses] == [True, True]
    assert f"report refused progress.done: job {bad.id}: nan is not a finite number" in caplog.text
    assert (await bench.control.jobs.get(good.id)).progress == Progress(done=1)
