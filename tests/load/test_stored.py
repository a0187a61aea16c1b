"""What is kept of a run with its job: all of it, or as much as there is room for."""

from __future__ import annotations

import msgspec
import pytest

from mainstay.load import handler
from mainstay.load.fleet.record import FleetRecord
from mainstay.load.fleet.saved_run import SavedRun
from mainstay.load.handler import as_job_stands, stored, summary_of
from mainstay.load.stats.model import Summary, Verdict
from mainstay.model import BLANK, LEAD_QUEUE, Job
from mainstay.task import Sealer
from tests.load.report.runs import a_summary


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("room", ["for all", "for one curve", "for none", "for counts"])
def test_what_there_is_no_room_for_is_left_out_curves_first(
    packed: bool, room: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = a_summary()
    slim = msgspec.structs.replace(whole, points=[msgspec.structs.replace(one, by_step={}) for one in whole.points])
    bare = msgspec.structs.replace(whole, points=[], distribution=[], response_distribution=[])
    steps = [msgspec.structs.replace(one, ok=None, response=None, phases={}, examples={}) for one in whole.steps]
    counted = msgspec.structs.replace(bare, steps=steps, by_tag=[])
    sizes = [len(msgspec.msgpack.encode(one)) for one in (whole, slim, bare, counted)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(whole.points) > 1
    assert counted != bare
    wanted, most = {
        "for all": (whole, sizes[0]),
        "for one curve": (slim, sizes[1]),
        "for none": (bare, sizes[1] - 1),
        "for counts": (counted, sizes[2] - 1),
    }[room]
    monkeypatch.setattr(handler, "_MOST_BYTES", most)

    if packed:
        points = [msgspec.Raw(msgspec.msgpack.encode(point)) for point in whole.points]
        found = stored(msgspec.structs.replace(whole, points=[]), points)
    else:
        found = stored(whole)

    assert msgspec.msgpack.decode(found, type=Summary) == wanted


def job(status: str, *, token: int = 1, result: bytes | None = None, reason: str | None = None) -> Job:
    return msgspec.structs.replace(
        BLANK, id="j1", kind="load", name="shop", status=status, token=token, result=result, reason=reason
    )


def of_claim(token: int, verdict: Verdict, ended: str) -> Summary:
    whole = a_summary(verdict=verdict, ended=ended)
    return msgspec.structs.replace(whole, header=msgspec.structs.replace(whole.header, token=token))


@pytest.mark.parametrize(
    ("status", "verdict", "ended", "told"),
    [
        ("running", "running", "running", "running"),
        ("running", "passed", "finished", "running"),
        ("running", "lost", "lost: the recording has 3 s and no end", "running"),
        ("cancelling", "interrupted", "interrupted", "interrupted"),
        ("failed", "failed", "finished", "failed"),
        ("cancelled", "interrupted", "cancelled: enough", "interrupted"),
        ("quarantined", "running", "running", "lost"),
        ("quarantined", "passed", "finished", "lost"),
        # it was retried, and waits for its next attempt
        ("pending", "running", "running", "lost"),
    ],
)
def test_a_run_has_the_verdict_that_the_state_of_its_job_allows(
    status: str, verdict: Verdict, ended: str, told: str
) -> None:
    found = as_job_stands(job(status), of_claim(1, verdict, ended))

    assert found is not None
    assert found.verdict == told


def test_only_a_job_with_a_result_has_passed() -> None:
    summary = of_claim(1, "passed", "finished")

    assert as_job_stands(job("succeeded", result=b"x"), summary) == summary


def test_what_an_earlier_attempt_stored_is_not_told_of_the_one_that_runs() -> None:
    assert as_job_stands(job("running", token=2), of_claim(1, "running", "running")) is None
    assert as_job_stands(job("running", token=2), of_claim(2, "running", "running")) is not None


@pytest.mark.parametrize("status", ["pending", "running"])
def test_the_numbers_of_a_run_that_managers_lead_outlive_the_claim_of_its_leader(status: str) -> None:
    saved = SavedRun(summary=msgspec.Raw(stored(of_claim(1, "running", "running"))), fleet=FleetRecord(), failures=1)
    led = msgspec.structs.replace(
        job(status, token=2), queue=LEAD_QUEUE, checkpoint=msgspec.msgpack.encode(saved), failures=1
    )

    found = summary_of(led, Sealer(None))

    assert found is not None
    assert (found.verdict, found.header.token) == ("running", 1)
    # another attempt of the job has saved nothing yet
    assert summary_of(msgspec.structs.replace(led, failures=2), Sealer(None)) is None
