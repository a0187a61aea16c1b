"""A store at a glance."""

from __future__ import annotations

import pytest

from mainstay.control import overview
from mainstay.errors import InvalidInput
from mainstay.model import private_queue

from .conftest import Bench


async def test_queues_with_jobs_or_settings_are_seen_with_who_works_on_them(bench: Bench) -> None:
    await bench.claimed(queue="mail")
    await bench.control.jobs.submit("a", queue="mail", delay="1h")
    await bench.control.operations.pause("night", reason="not before ten")
    seen = await overview.queues(bench.store)
    mail, night = seen.queues
    assert (mail.name, mail.waiting, mail.sessions_at_work, mail.paused) == ("mail", 1, 1, False)
    assert (night.name, night.waiting, night.reason, night.paused) == ("night", 0, "not before ten", True)
    assert seen.live_sessions == 1


async def test_queues_that_were_made_for_one_job_are_not_listed(bench: Bench) -> None:
    await bench.control.jobs.submit("Shop", queue=private_queue("3f9c"))
    await bench.control.jobs.submit("a", queue="mail")
    assert [queue.name for queue in (await overview.queues(bench.store)).queues] == ["mail"]


async def test_a_queue_nobody_has_heard_of_is_refused(bench: Bench) -> None:
    await bench.control.jobs.submit("a", queue="mail")
    await overview.check_known(bench.store, ["mail"])
    with pytest.raises(InvalidInput, match="unknown queue 'mial'; known queues: mail"):
        await overview.check_known(bench.store, ["mail", "mial"])


async def test_the_silent_come_after_the_living_and_keep_what_they_hold(bench: Bench) -> None:
    job = await bench.claimed()
    bench.clock.advance(3600)
    living = await bench.session()
    first, second = await overview.sessions(bench.store)
    assert (first.session.id, first.at_work, first.holds) == (living.id, True, 0)
    assert (second.session.id, second.at_work, [each.id for each in second.held]) == (job.session, False, [job.id])


async def test_limits_are_seen_with_what_is_held_of_them(bench: Bench) -> None:
    assert await overview.limits(bench.store) == []
    await bench.claimed(concurrency_key="tenant")
    await bench.control.operations.set_limit("tenant", 3)
    await bench.control.operations.set_limit("other", 1)
    other, tenant = await overview.limits(bench.store)
    assert (tenant.key, tenant.limit, tenant.held, tenant.counted) == ("tenant", 3, 1, True)
    assert (other.key, other.held) == ("other", 0)
