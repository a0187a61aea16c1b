"""More time, earned by progress."""

from __future__ import annotations

import msgspec
import pytest

from mainstay.control import JobRequest, OptionReader
from mainstay.errors import StaleClaim
from mainstay.model import LEAD_QUEUE, Progress

from .conftest import Bench


async def test_grants_halve_and_end_after_five(bench: Bench) -> None:
    job = await bench.running(timeout="32s")

    grants = [await bench.worker.claims.extend(job, progress=Progress(done=n)) for n in range(1, 7)]

    assert [grant.granted_s for grant in grants] == [16, 8, 4, 2, 1, 0]
    assert "used up" in grants[-1].why
    row = await bench.control.jobs.get(job.id)
    assert row.extra_ms == 31_000
    assert row.expires_ms == (row.started_ms or 0) + 63_000 + 10_000
    notes = [event for event in await bench.control.jobs.events(job.id) if event.flag == "note"]
    assert len(notes) == 5


async def test_a_grant_has_a_floor(bench: Bench) -> None:
    job = await bench.running(timeout="3s")

    grants = [(await bench.worker.claims.extend(job, progress=Progress(done=n))).granted_s for n in range(1, 4)]

    assert grants == [1.5, 1.0, 1.0]


async def test_no_progress_no_grant(bench: Bench) -> None:
    job = await bench.running(timeout="30s")

    assert not (await bench.worker.claims.extend(job)).granted
    assert (await bench.worker.claims.extend(job, progress=Progress(done=5))).granted
    assert not (await bench.worker.claims.extend(job, progress=Progress(done=5))).granted
    assert not (await bench.worker.claims.extend(job, progress=Progress(done=4))).granted
    assert (await bench.worker.claims.extend(job, progress=Progress(done=6))).granted


async def test_the_next_attempt_starts_with_no_extra_time_and_all_its_grants(bench: Bench) -> None:
    job = await bench.running(timeout="30s")
    await bench.worker.claims.extend(job, progress=Progress(done=5))
    await bench.worker.attempts.release([job], reason="draining")
    session = await bench.session()
    bench.clock.advance(1)

    [again] = await bench.worker.claims.claim(["default"], session.id, 1)

    assert again.extra_ms == 0
    assert "no progress yet" in (await bench.worker.claims.extend(again)).why
    assert (await bench.worker.claims.extend(again, progress=Progress(done=1))).granted_s == 15


async def test_a_run_that_managers_lead_keeps_its_grants_when_another_one_claims_it(bench: Bench) -> None:
    plan = msgspec.structs.replace(OptionReader(bench.control.settings).read({"timeout": "32s"}), queue=LEAD_QUEUE)
    await bench.control.jobs.submit_request(JobRequest("shop", None, plan))
    [job] = await bench.worker.claims.claim([LEAD_QUEUE], (await bench.session()).id, 1)
    first = [await bench.worker.claims.extend(job, progress=Progress(done=n)) for n in (1, 2)]
    await bench.worker.attempts.release([job], reason="its manager stops")
    bench.clock.advance(1)
    [again] = await bench.worker.claims.claim([LEAD_QUEUE], (await bench.session()).id, 1)

    stale = await bench.worker.claims.extend(again, progress=Progress(done=2))
    rest = [await bench.worker.claims.extend(again, progress=Progress(done=n)) for n in (3, 4, 5, 6)]

    assert [grant.granted_s for grant in [*first, stale, *rest]] == [16, 8, 0, 4, 2, 1, 0]
    assert [grant.total_s for grant in [*first, stale, *rest]] == [16, 24, 24, 28, 30, 31, 31]
    assert "used up" in rest[-1].why


async def test_a_lost_claim_gets_no_time(bench: Bench) -> None:
    job = await bench.running()
    await bench.control.operations.force(job.id, "pending", actor="ann", reason="test")

    with pytest.raises(StaleClaim):
        await bench.worker.claims.extend(job, progress=Progress(done=1))
    with pytest.raises(StaleClaim):
        await bench.worker.claims.extend(job)
