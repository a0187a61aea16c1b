"""Jobs that wait for others, and groups, as submitters and operators see them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainstay.control import Completion, Failure, JobRequest
from mainstay.errors import InvalidInput, InvalidTransition, JobNotFound, KeyConflict, UniqueClash
from mainstay.model import AWAITS_MS, ErrorInfo, Session
from mainstay.stores import Query

from .conftest import Bench

PERMANENT = ErrorInfo(type="Broken", message="for good", retryable=False)


@pytest.fixture
async def session(bench: Bench) -> Session:
    return await bench.worker.claims.open_session(worker="w", lease_s=600)


async def succeed(bench: Bench, session: Session, *queues: str) -> list[str]:
    """Run all that is ready in these queues; the names of what ran."""
    jobs = await bench.worker.claims.claim(queues or ["default"], session.id, 100)
    await bench.worker.attempts.complete([Completion(job, result="done") for job in jobs])
    return [job.name for job in jobs]


async def fail(bench: Bench, session: Session, queue: str) -> None:
    [job] = await bench.worker.claims.claim([queue], session.id, 1)
    await bench.worker.attempts.fail([Failure(job, PERMANENT)])


# options -------------------------------------------------------------------------------------------


async def test_a_job_runs_after_those_it_waits_for(bench: Bench, session: Session) -> None:
    first, second = await bench.control.jobs.submit("one"), await bench.control.jobs.submit("two")
    then = await bench.control.jobs.submit("then", after=[first.id, second.id, first.id])
    row = await bench.control.jobs.get(then.id)
    assert (row.status, row.reason, row.due_ms) == ("scheduled", "waits for 2 jobs", AWAITS_MS)
    assert (row.options.after_when, row.options.after_failed) == ("succeeded", "skip")
    assert await bench.control.jobs.awaited(then.id) == [first.id, second.id]
    assert await succeed(bench, session) == ["one", "two"]
    assert await succeed(bench, session) == ["then"]
    assert await bench.path(then.id) == ["scheduled", "pending", "running", "succeeded"]


async def test_one_job_is_one_job(bench: Bench) -> None:
    first = await bench.control.jobs.submit("one")
    then = await bench.control.jobs.submit("then", after=[first.id])
    assert (await bench.control.jobs.get(then.id)).reason == "waits for 1 job"


@pytest.mark.parametrize(
    ("options", "field", "rule"),
    [
        ({"after": "x"}, "after", "not a list of job ids"),
        ({"after": 7}, "after", "not a list of job ids"),
        ({"after": ["x"]}, "after[0]", "is not a job id"),
        ({"after": [None]}, "after[0]", "is not a job id"),
        ({"after": ["018bcfe5-6800-7000-8000-0123456789ab"]}, "after[0]", "there is no job"),
        ({"after_when": "settled"}, "after_when", "needs `after`"),
        ({"after_failed": "fail"}, "after_failed", "needs `after`"),
        ({"after": [], "after_when": "done"}, "after_when", "not one of succeeded, settled"),
        ({"after": [], "after_failed": "cancel"}, "after_failed", "not one of skip, fail"),
        ({"after": [], "after_when": "settled", "after_failed": "fail"}, "after_failed", "has no effect"),
    ],
)
async def test_wrong_wishes_are_refused_with_the_field(
    bench: Bench, options: dict[str, Any], field: str, rule: str
) -> None:
    with pytest.raises(InvalidInput, match=rule.replace("[", r"\[")) as caught:
        await bench.control.jobs.submit("then", **options)
    assert caught.value.field == field
    assert await bench.everything() == []


async def test_in_a_batch_the_request_is_named_too(bench: Bench) -> None:
    never = "018bcfe5-6800-7000-8000-0123456789ab"
    with pytest.raises(InvalidInput) as caught:
        await bench.control.jobs.submit_many([JobRequest("one"), JobRequest("two", None, {"after": [never]})])
    assert caught.value.field == "requests[1].after[0]"


async def test_more_than_ten_thousand_are_refused(bench: Bench) -> None:
    ids = [f"018bcfe5-6800-7000-8000-{n:012x}" for n in range(10_001)]
    with pytest.raises(InvalidInput, match="10001 jobs are more than the limit of 10000"):
        await bench.control.jobs.submit("then", after=ids)


async def test_a_unit_cannot_wait(bench: Bench) -> None:
    parent = await bench.control.jobs.submit("parent")
    with pytest.raises(InvalidInput, match="a unit cannot wait for other jobs"):
        await bench.control.jobs.submit("unit", parent=parent.id, unit="u", after=[parent.id])


async def test_waiting_for_nothing_is_being_ready(bench: Bench, session: Session) -> None:
    then = await bench.control.jobs.submit("then", after=[], after_when="settled")
    row = await bench.control.jobs.get(then.id)
    assert (row.status, row.options.after_when) == ("pending", None)
    assert await bench.control.jobs.awaited(then.id) == []


async def test_a_delay_besides_is_counted_from_the_submit(bench: Bench, session: Session) -> None:
    first = await bench.control.jobs.submit("one")
    then = await bench.control.jobs.submit("then", after=[first.id], delay="1m")
    await succeed(bench, session)
    row = await bench.control.jobs.get(then.id)
    assert (row.status, row.due_ms) == ("scheduled", row.created_ms + 60_000)
    bench.clock.advance(61)
    assert await succeed(bench, session) == ["then"]


async def test_a_time_besides_that_has_passed_is_no_matter(bench: Bench, session: Session) -> None:
    first = await bench.control.jobs.submit("one")
    at = datetime.fromtimestamp(bench.clock.now_ms() / 1000, UTC) + timedelta(seconds=5)
    then = await bench.control.jobs.submit("then", after=[first.id], run_at=at)
    bench.clock.advance(6)
    await succeed(bench, session)
    assert (await bench.control.jobs.get(then.id)).status == "pending"


async def test_a_queue_deadline_ends_the_wait(bench: Bench) -> None:
    first = await bench.control.jobs.submit("one")
    then = await bench.control.jobs.submit("then", after=[first.id], queue_deadline="1m")
    behind = await bench.control.jobs.submit("behind", after=[then.id])
    bench.clock.advance(61)
    await bench.control.sweeper.sweep()
    assert (await bench.control.jobs.get(then.id)).status == "timed_out"
    assert (await bench.control.jobs.get(behind.id)).status == "skipped"


@pytest.mark.parametrize(("choice", "status"), [("skip", "skipped"), ("fail", "failed")])
async def test_a_dependency_that_fails_decides(bench: Bench, session: Session, choice: str, status: str) -> None:
    first = await bench.control.jobs.submit("one")
    then = await bench.control.jobs.submit("then", after=[first.id], after_failed=choice)
    await fail(bench, session, "default")
    row = await bench.control.jobs.get(then.id)
    assert (row.status, row.reason) == (status, f"waited for job {first.id} to succeed, and it is failed")
    assert (row.error is not None and row.error.code) == ("dependency_failed" if choice == "fail" else False)
    assert any(first.id in line for line in await bench.control.jobs.story(then.id))


async def test_a_dependency_that_is_tried_again_is_waited_for(bench: Bench, session: Session) -> None:
    first = await bench.control.jobs.submit("one")
    then = await bench.control.jobs.submit("then", after=[first.id])
    [job] = await bench.worker.claims.claim(["default"], session.id, 1)
    await bench.worker.attempts.fail([Failure(job, RuntimeError("not yet"))])
    assert (await bench.control.jobs.get(then.id)).status == "scheduled"
    bench.clock.advance(60)
    await succeed(bench, session)
    assert (await bench.control.jobs.get(then.id)).status == "pending"


async def test_a_wait_for_the_end_takes_any(bench: Bench, session: Session) -> None:
    first = await bench.control.jobs.submit("one")
    then = await bench.control.jobs.submit("then", after=[first.id], after_when="settled")
    await bench.control.operations.cancel(first.id, actor="ann")
    assert (await bench.control.jobs.get(then.id)).status == "pending"


async def test_a_follow_up_of_a_completion_may_wait(bench: Bench, session: Session) -> None:
    other = await bench.control.jobs.submit("other", queue="b")
    await bench.control.jobs.submit("one")
    [job] = await bench.worker.claims.claim(["default"], session.id, 1)
    spawn = (JobRequest("follow", None, {"after": [job.id, other.id]}),)
    [outcome] = await bench.worker.attempts.complete([Completion(job, spawn=spawn)])
    assert outcome.ok
    assert await succeed(bench, session, "b") == ["other"]
    assert await succeed(bench, session) == ["follow"]


async def test_a_follow_up_that_waits_for_nobody_there_is_refused_with_its_completion(
    bench: Bench, session: Session
) -> None:
    await bench.control.jobs.submit("one")
    [job] = await bench.worker.claims.claim(["default"], session.id, 1)
    spawn = (JobRequest("follow", None, {"after": ["018bcfe5-6800-7000-8000-0123456789ab"]}),)
    [outcome] = await bench.worker.attempts.complete([Completion(job, spawn=spawn)])
    assert outcome.outcome == "invalid"
    assert "waits for a job that does not exist" in str(outcome.error)


# operators -----------------------------------------------------------------------------------------


async def test_a_skipped_one_stays_skipped(bench: Bench, session: Session) -> None:
    first = await bench.control.jobs.submit("one")
    then = await bench.control.jobs.submit("then", after=[first.id])
    await fail(bench, session, "default")
    with pytest.raises(InvalidTransition):
        await bench.control.operations.retry(then.id, actor="ann")


async def test_a_failed_one_runs_when_it_is_retried(bench: Bench, session: Session) -> None:
    first = await bench.control.jobs.submit("one")
    then = await bench.control.jobs.submit("then", after=[first.id], after_failed="fail")
    await fail(bench, session, "default")
    assert (await bench.control.operations.retry(then.id, actor="ann")).status == "pending"
    assert await succeed(bench, session) == ["then"]


async def test_a_waiting_one_is_not_retried_but_can_be_forced(bench: Bench, session: Session) -> None:
    first = await bench.control.jobs.submit("one", queue="a")
    then = await bench.control.jobs.submit("then", after=[first.id])
    with pytest.raises(InvalidTransition, match="it waits for other jobs; wait for them, or force it"):
        await bench.control.operations.retry(then.id, actor="ann")
    assert (await bench.control.operations.force(then.id, "pending", actor="ann", reason="no time")).status == "pending"
    assert await succeed(bench, session) == ["then"]
    assert await succeed(bench, session, "a") == ["one"]
    assert await bench.path(then.id) == ["scheduled", "pending", "running", "succeeded"]


async def test_a_cancelled_one_stays_cancelled(bench: Bench, session: Session) -> None:
    first = await bench.control.jobs.submit("one")
    then = await bench.control.jobs.submit("then", after=[first.id])
    await bench.control.operations.cancel(then.id, actor="ann")
    await succeed(bench, session)
    assert (await bench.control.jobs.get(then.id)).status == "cancelled"


async def test_its_priority_can_be_changed_while_it_waits(bench: Bench, session: Session) -> None:
    first = await bench.control.jobs.submit("one", queue="a")
    then = await bench.control.jobs.submit("then", after=[first.id])
    await bench.control.operations.set_priority(then.id, 10, actor="ann")
    await succeed(bench, session, "a")
    bench.clock.advance(-1)
    await bench.control.jobs.submit("earlier")
    assert await succeed(bench, session) == ["then", "earlier"]


async def test_asking_what_a_job_waits_for_needs_a_job(bench: Bench) -> None:
    with pytest.raises(JobNotFound):
        await bench.control.jobs.awaited("018bcfe5-6800-7000-8000-0123456789ab")


async def test_several_jobs_are_read_in_the_order_asked_for(bench: Bench) -> None:
    made = await bench.control.jobs.submit_many([JobRequest(name) for name in ("one", "two", "three")])
    wanted = [made[2].id, made[0].id]
    assert [job.id for job in await bench.control.jobs.get_many(wanted)] == wanted
    with pytest.raises(JobNotFound):
        await bench.control.jobs.get_many([made[0].id, "018bcfe5-6800-7000-8000-0123456789ab"])


# groups --------------------------------------------------------------------------------------------


def members(n: int, **options: Any) -> list[JobRequest]:
    return [JobRequest("member", {"n": each}, options) for each in range(n)]


async def test_the_callback_of_a_group_runs_once_when_all_are_done(bench: Bench, session: Session) -> None:
    group = await bench.control.jobs.submit_group(members(5), JobRequest("then", {"x": 1}, {"queue": "b"}))
    assert group.then.created
    assert [each.created for each in group.members] == [True] * 5
    ids = [each.id for each in group.members]
    assert await bench.control.jobs.awaited(group.then.id) == ids
    found = await bench.control.store.find(Query(group=group.then.id, oldest_first=True))
    assert [job.id for job in found.jobs] == ids
    assert await succeed(bench, session, "b") == []
    assert await succeed(bench, session) == ["member"] * 5
    assert await succeed(bench, session, "b") == ["then"]
    assert await bench.path(group.then.id) == ["scheduled", "pending", "running", "succeeded"]


async def test_a_group_of_none_is_done_at_once(bench: Bench, session: Session) -> None:
    group = await bench.control.jobs.submit_group([], JobRequest("then"))
    assert group.members == []
    assert await succeed(bench, session) == ["then"]


@pytest.mark.parametrize(("failed", "status"), [("skip", "skipped"), ("fail", "failed")])
async def test_a_member_that_fails_decides(bench: Bench, session: Session, failed: Any, status: str) -> None:
    group = await bench.control.jobs.submit_group(members(3), JobRequest("then"), failed=failed)
    await fail(bench, session, "default")
    assert (await bench.control.jobs.get(group.then.id)).status == status


async def test_a_group_may_wait_for_any_end(bench: Bench, session: Session) -> None:
    group = await bench.control.jobs.submit_group(members(2), JobRequest("then", None, {"queue": "b"}), when="settled")
    await fail(bench, session, "default")
    await succeed(bench, session)
    assert await succeed(bench, session, "b") == ["then"]
    assert (await bench.control.jobs.get(group.then.id)).options.after_failed is None


async def test_a_member_that_was_there_before_counts_as_that_job(bench: Bench, session: Session) -> None:
    known = await bench.control.jobs.submit("member", {"n": 0}, key="m0", queue="a")
    requests = [JobRequest("member", {"n": 0}, {"key": "m0"}), JobRequest("member", {"n": 1})]
    group = await bench.control.jobs.submit_group(requests, JobRequest("then", None, {"queue": "b"}))
    assert [(each.id == known.id, each.created) for each in group.members] == [(True, False), (False, True)]
    assert await bench.control.jobs.awaited(group.then.id) == [each.id for each in group.members]
    await succeed(bench, session)
    assert await succeed(bench, session, "b") == []
    await succeed(bench, session, "a")
    assert await succeed(bench, session, "b") == ["then"]


async def test_a_group_that_was_submitted_before_is_given_back(bench: Bench) -> None:
    then = JobRequest("then", None, {"key": "g1"})
    first = await bench.control.jobs.submit_group(members(3), then)
    again = await bench.control.jobs.submit_group(members(3), then)
    assert (again.then.id, again.then.created) == (first.then.id, False)
    assert [(each.id, each.created) for each in again.members] == [(each.id, False) for each in first.members]
    assert len(await bench.everything()) == 4


@pytest.mark.parametrize(
    ("given", "how"),
    [
        (range(2), {}),
        (range(4), {}),
        ([0, 2, 1], {}),
        ([], {}),
        (range(3), {"when": "settled"}),
        (range(3), {"failed": "fail"}),
    ],
)
async def test_the_key_of_a_callback_is_that_of_the_group_and_is_refused_to_another(
    bench: Bench, given: Iterable[int], how: dict[str, Any]
) -> None:
    then = JobRequest("then", None, {"key": "g1"})
    await bench.control.jobs.submit_group(members(3), then)
    with pytest.raises(KeyConflict, match="^then: idempotency key 'g1' of then was used before"):
        await bench.control.jobs.submit_group([JobRequest("member", {"n": n}) for n in given], then, **how)
    assert len(await bench.everything()) == 4


async def test_the_key_of_a_job_is_not_that_of_a_group(bench: Bench) -> None:
    await bench.control.jobs.submit("then", key="g1")
    with pytest.raises(KeyConflict):
        await bench.control.jobs.submit_group(members(1), JobRequest("then", None, {"key": "g1"}))
    assert len(await bench.everything()) == 1


async def test_a_group_that_is_given_back_has_each_member_where_it_was(bench: Bench) -> None:
    """Also those that met each other, or a job that was there before."""
    known = await bench.control.jobs.submit("member", {"n": 9}, key="there")
    given = [
        JobRequest("member", {"n": 0}, {"key": "d"}),
        JobRequest("member", {"n": 1}, {"unique": "u"}),
        JobRequest("member", {"n": 0}, {"key": "d"}),
        JobRequest("member", {"n": 9}, {"key": "there"}),
        JobRequest("member", {"n": 2}, {"unique": "u"}),
        JobRequest("member", {"n": 3}),
    ]
    then = JobRequest("then", None, {"key": "g1"})
    first = await bench.control.jobs.submit_group(given, then)
    again = await bench.control.jobs.submit_group(given, then)
    ids = [each.id for each in first.members]
    assert (ids[0], ids[1], ids[3]) == (ids[2], ids[4], known.id)
    assert [each.id for each in again.members] == ids
    assert {each.durability for each in (again.then, *again.members)} == {first.then.durability} != {""}


@pytest.mark.parametrize("field", ["key", "unique"])
async def test_a_callback_that_would_be_one_of_the_members_is_refused(bench: Bench, field: str) -> None:
    given = [JobRequest("m"), JobRequest("t", None, {field: "z"})]
    with pytest.raises(InvalidInput, match=rf"^then\.{field}: members\[1\]"):
        await bench.control.jobs.submit_group(given, JobRequest("t", None, {field: "z"}))
    assert await bench.everything() == []
    await bench.control.jobs.submit_group([JobRequest("m", None, {field: "z"})], JobRequest("t", None, {field: "z"}))


@pytest.mark.parametrize(
    ("given", "then", "more", "field"),
    [
        ([JobRequest("m"), JobRequest("m", None, {"retrys": 1})], JobRequest("t"), {}, "members[1].retrys"),
        ([JobRequest("m"), JobRequest("m", None, {"group": "g"})], JobRequest("t"), {}, "members[1].group"),
        ([JobRequest("m")], JobRequest("t", None, {"retrys": 1}), {}, "then.retrys"),
        ([JobRequest("m")], JobRequest("t", object()), {}, "then.payload"),
        ([JobRequest("m")], JobRequest("t"), {"when": "done"}, "when"),
        ([JobRequest("m")], JobRequest("t"), {"failed": "cancel"}, "failed"),
        ([JobRequest("m")], JobRequest("t"), {"when": "settled", "failed": "fail"}, "failed"),
        ([JobRequest("m")] * 10_001, JobRequest("t"), {}, "members"),
        (7, JobRequest("t"), {}, "members"),
        ([JobRequest("m", None, {"retrys": 1})], JobRequest("t"), {}, "members[0].retrys"),
    ],
)
async def test_a_wrong_group_is_refused_with_the_place(
    bench: Bench, given: Iterable[JobRequest], then: JobRequest, more: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        await bench.control.jobs.submit_group(given, then, **more)
    assert caught.value.field == field
    assert await bench.everything() == []


async def test_a_callback_with_waits_of_its_own_is_refused(bench: Bench) -> None:
    first = await bench.control.jobs.submit("one")
    with pytest.raises(InvalidInput, match="then.after: leave it out; the callback waits for the members"):
        await bench.control.jobs.submit_group(members(1), JobRequest("then", None, {"after": [first.id]}))


async def test_what_the_store_refuses_names_the_member_or_the_callback(bench: Bench) -> None:
    never = "018bcfe5-6800-7000-8000-0123456789ab"
    requests = [JobRequest("m"), JobRequest("m", None, {"after": [never]})]
    with pytest.raises(InvalidInput) as caught:
        await bench.control.jobs.submit_group(requests, JobRequest("then"))
    assert caught.value.field == "members[1].after[0]"
    await bench.control.jobs.submit("then", unique="u")
    with pytest.raises(UniqueClash, match="^then: "):
        await bench.control.jobs.submit_group(
            members(1), JobRequest("then", None, {"unique": "u", "on_clash": "refuse"})
        )
