"""Ready-made rows are rows a store would accept."""

from __future__ import annotations

import random

from mainstay.lifecycle import Chain
from mainstay.model import IdSource, Lane
from mainstay.testing import VirtualClock, a_job, new_job


def test_a_job_takes_any_field() -> None:
    job = a_job("running", session="s1", priority=7)
    assert (job.status, job.session, job.priority) == ("running", "s1", 7)


def test_new_jobs_are_sealed_ready_and_in_order() -> None:
    clock, ids = VirtualClock(), IdSource(random.Random(1))
    first, second = new_job(clock, ids), new_job(clock, ids, priority=1)
    assert first.job.id < second.job.id
    assert (first.job.status, first.job.lane, first.job.version) == ("pending", Lane.READY, 1)
    assert second.job.rank == first.job.rank - 60_000
    assert Chain().first_break(first.job, first.events) is None


def test_a_delayed_job_is_scheduled_and_a_delayed_unit_is_pending() -> None:
    clock, ids = VirtualClock(), IdSource(random.Random(1))
    job = new_job(clock, ids, delay_s=5).job
    unit = new_job(clock, ids, delay_s=5, parent=job.id, unit="a").job
    assert (job.status, job.lane, job.due_ms) == ("scheduled", Lane.DUE, clock.now_ms() + 5_000)
    assert (unit.status, unit.lane) == ("pending", Lane.DUE)


def test_a_key_comes_with_its_time_to_live_and_a_key_of_the_audit_trail_is_used() -> None:
    clock, ids, chain = VirtualClock(), IdSource(random.Random(1)), Chain(b"secret")
    new = new_job(clock, ids, name="mail.send", key="k", content=b"c", key_ttl_s=10, chain=chain)
    assert new.key is not None
    assert (new.key.scope, new.key.name, new.key.content) == ("mail.send", "k", b"c")
    assert new.key.until_ms == clock.now_ms() + 10_000
    assert chain.first_break(new.job, new.events) is None
