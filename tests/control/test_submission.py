"""Submitting: what is stored, what is given back, what is refused."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from mainstay.control import Completion, Control, JobRequest, decoded
from mainstay.errors import InvalidInput, KeyConflict, PayloadTooLarge, UniqueClash, UnknownOption
from mainstay.model import Settings

from .conftest import Bench


async def test_a_plain_job_is_pending_at_once_with_the_defaults_of_the_settings(bench: Bench) -> None:
    submitted = await bench.control.jobs.submit("mail.send", {"to": "a@b.c"})

    job = await bench.control.jobs.get(submitted.id)
    assert submitted.created
    assert (job.status, job.queue, job.priority, job.reason) == ("pending", "default", 0, None)
    assert (job.options.retry.retries, job.options.run_timeout_s) == (3, 3600.0)
    assert decoded(job.payload) == {"to": "a@b.c"}


async def test_the_first_event_carries_a_digest_of_the_payload(bench: Bench) -> None:
    submitted = await bench.control.jobs.submit("mail.send", {"to": "a@b.c"})

    first = (await bench.control.jobs.events(submitted.id))[0]
    digest = first.data["payload_sha256"]
    assert len(digest) == 32
    assert "a@b.c" not in str(first.details)


async def test_a_delayed_job_is_scheduled_with_a_reason_and_claimed_only_when_due(bench: Bench) -> None:
    submitted = await bench.control.jobs.submit("t", delay="5m")
    session = await bench.session()

    job = await bench.control.jobs.get(submitted.id)
    assert job.status == "scheduled"
    assert job.reason is not None
    assert "waits until" in job.reason
    bench.clock.advance(299)
    await bench.worker.claims.beat([session.id])
    assert await bench.worker.claims.claim(["default"], session.id, 1) == []
    bench.clock.advance(1)
    assert [found.id for found in await bench.worker.claims.claim(["default"], session.id, 1)] == [submitted.id]


async def test_run_at_is_an_instant_in_any_time_zone(bench: Bench) -> None:
    at = datetime.fromtimestamp(bench.clock.now_ms() / 1000, UTC) + timedelta(hours=1)

    submitted = await bench.control.jobs.submit("t", run_at=at)

    assert (await bench.control.jobs.get(submitted.id)).due_ms == bench.clock.now_ms() + 3_600_000


async def test_the_same_key_and_content_gives_the_first_job_back_and_says_so(bench: Bench) -> None:
    first = await bench.control.jobs.submit("t", {"a": 1, "b": 2}, key="k", priority=1)
    again = await bench.control.jobs.submit("t", {"b": 2, "a": 1}, key="k", priority=9)

    assert (again.id, again.created) == (first.id, False)
    assert len(await bench.everything()) == 1


async def test_the_same_key_with_other_content_is_a_conflict(bench: Bench) -> None:
    await bench.control.jobs.submit("t", 1, key="k")

    with pytest.raises(KeyConflict, match="k"):
        await bench.control.jobs.submit("t", 2, key="k")
    assert len(await bench.everything()) == 1


async def test_a_key_is_forgotten_after_its_time_to_live(bench: Bench) -> None:
    await bench.control.jobs.submit("t", 1, key="k", key_ttl="10m")
    bench.clock.advance(601)

    assert (await bench.control.jobs.submit("t", 2, key="k")).created


async def test_keys_of_different_tasks_do_not_meet(bench: Bench) -> None:
    await bench.control.jobs.submit("a", 1, key="k", unique="u")

    assert (await bench.control.jobs.submit("b", 2, key="k", unique="u")).created


async def test_unique_gives_the_unsettled_job_back_until_it_settles(bench: Bench) -> None:
    first = await bench.control.jobs.submit("t", 1, unique="u")
    assert (await bench.control.jobs.submit("t", 2, unique="u")).id == first.id

    await bench.control.operations.cancel(first.id, actor="ann")

    assert (await bench.control.jobs.submit("t", 2, unique="u")).created


async def test_unique_by_content_tells_arguments_apart(bench: Bench) -> None:
    await bench.control.jobs.submit("t", 1, unique=True)

    assert not (await bench.control.jobs.submit("t", 1, unique=True)).created
    assert (await bench.control.jobs.submit("t", 2, unique=True)).created


async def test_a_unique_clash_can_be_refused(bench: Bench) -> None:
    await bench.control.jobs.submit("t", 1, unique="u")

    with pytest.raises(UniqueClash):
        await bench.control.jobs.submit("t", 2, unique="u", on_clash="refuse")
    assert len(await bench.everything()) == 1


async def test_replace_cancels_the_waiting_holder_and_submits(bench: Bench) -> None:
    first = await bench.control.jobs.submit("t", 1, unique="u", delay="1h")

    second = await bench.control.jobs.submit("t", 2, unique="u", on_clash="replace")

    old, new = await bench.control.jobs.get(first.id), await bench.control.jobs.get(second.id)
    assert second.created
    assert (old.status, new.status) == ("cancelled", "pending")
    assert old.reason == f"replaced by {second.id}"


async def test_replace_leaves_a_running_holder_alone_and_says_so(bench: Bench) -> None:
    job = await bench.running(unique="u")

    with pytest.raises(UniqueClash, match="running"):
        await bench.control.jobs.submit("demo.task", 2, unique="u", on_clash="replace")
    assert (await bench.control.jobs.get(job.id)).status == "running"
    assert len(await bench.everything()) == 1


async def test_a_resent_replace_gives_its_own_first_job_back_unharmed(bench: Bench) -> None:
    options = {"key": "order-7", "unique": "order-7", "on_clash": "replace"}
    first = await bench.control.jobs.submit("t", {"x": 1}, **options)

    again = await bench.control.jobs.submit("t", {"x": 1}, **options)

    assert (again.id, again.created) == (first.id, False)
    assert (await bench.control.jobs.get(first.id)).status == "pending"
    assert len(await bench.everything()) == 1


async def test_a_resent_replace_whose_job_was_deleted_still_names_it(bench: Bench) -> None:
    options = {"key": "order-7", "unique": "order-7", "on_clash": "replace"}
    first = await bench.control.jobs.submit("t", {"x": 1}, **options)
    await bench.control.operations.delete(first.id, actor="ann", reason="enough")

    again = await bench.control.jobs.submit("t", {"x": 1}, **options)

    assert (again.id, again.created) == (first.id, False)


async def test_replace_with_a_key_of_its_own_takes_the_place_of_the_holder(bench: Bench) -> None:
    held = await bench.control.jobs.submit("t", {"x": 1}, unique="u")
    taking = await bench.control.jobs.submit("t", {"x": 2}, unique="u", on_clash="replace", key="k")

    assert taking.created
    assert [(await bench.control.jobs.get(each.id)).status for each in (held, taking)] == ["cancelled", "pending"]


async def test_a_batch_is_all_or_nothing_and_names_the_bad_request(bench: Bench) -> None:
    with pytest.raises(UnknownOption, match=r"requests\[1\]\.retrys.*did you mean 'retries'"):
        await bench.control.jobs.submit_many([JobRequest("t", 1), JobRequest("t", 2, {"retrys": 3})])
    assert await bench.everything() == []


async def test_a_batch_keeps_its_order(bench: Bench) -> None:
    made = await bench.control.jobs.submit_many(JobRequest("t", n) for n in range(50))
    session = await bench.session()

    claimed = await bench.worker.claims.claim(["default"], session.id, 50)

    assert [job.id for job in claimed] == [one.id for one in made]


async def test_equal_policies_share_one_options_object() -> None:
    from mainstay.testing import MemoryStore

    control = Control(MemoryStore())
    assert control.jobs.plan(retries=5, key="a").options is control.jobs.plan(retries=5, key="b").options


NOBODY = "018bcfe5-6800-7000-8000-000000000001"

BAD = [
    ({"retrys": 3}, "retrys", "did you mean 'retries'"),
    ({"priority": 101}, "priority", "from -100 to 100"),
    ({"priority": True}, "priority", "whole number"),
    ({"delay": "5"}, "delay", "unit"),
    ({"delay": 5}, "delay", "duration"),
    ({"delay": "-5s"}, "delay", "duration"),
    ({"delay": "99999999d"}, "delay", "from zero to 36500d"),
    ({"delay": timedelta(seconds=-1)}, "delay", "out of range"),
    ({"run_at": datetime(2030, 1, 1)}, "run_at", "time zone"),  # noqa: DTZ001 - naive on purpose
    ({"run_at": "2030-01-01"}, "run_at", "not a datetime; pass an aware datetime, or use delay"),
    ({"delay": "5m", "run_at": datetime(2030, 1, 1, tzinfo=UTC)}, "delay", "not both"),
    ({"retries": -1}, "retries", "out of range"),
    ({"retries": 1.5}, "retries", "whole number"),
    ({"backoff": "cubic"}, "backoff", "exponential"),
    ({"jitter": "yes"}, "jitter", "True nor False"),
    ({"crash_budget": 0}, "crash_budget", "out of range"),
    ({"timeout": "0s"}, "timeout", "'off'"),
    ({"timeout": None}, "timeout", "'off'"),
    ({"timeout": "soon"}, "timeout", "duration"),
    ({"queue_deadline": datetime(2030, 1, 1)}, "queue_deadline", "time zone"),  # noqa: DTZ001 - naive on purpose
    ({"queue_deadline": datetime(2001, 1, 1, tzinfo=UTC)}, "queue_deadline", "before the job is due"),
    ({"queue_deadline": 5}, "queue_deadline", "duration"),
    ({"on_stall": "panic"}, "on_stall", "hold"),
    ({"on_clash": "ignore"}, "on_clash", "replace"),
    ({"queue": ""}, "queue", "1 to 100"),
    ({"queue": "a b"}, "queue", "letters"),
    ({"queue": "q" * 101}, "queue", "1 to 100"),
    ({"key": "k" * 256}, "key", "1 to 255"),
    ({"key": "a\nb"}, "key", "printed"),
    ({"key": "\ud800"}, "key", "printed"),
    ({"unique": 5}, "unique", "key"),
    ({"tags": "urgent"}, "tags", "list"),
    ({"tags": ["ok", ""]}, "tags[1]", "characters"),
    ({"metadata": {"a": 1}}, "metadata.a", "text"),
    ({"keep": "0s"}, "keep", "longer than zero"),
    ({"on_clash": "refuse"}, "on_clash", "needs `unique`"),
    ({"key_ttl": "1h"}, "key_ttl", "needs `key`"),
    ({"on_stall": "hold"}, "on_stall", "needs `stall_timeout`"),
    ({"on_stall": "hold", "stall_timeout": "off"}, "on_stall", "needs `stall_timeout`"),
    ({"parent": "nobody", "unit": "u"}, "parent", "not a job id"),
    ({"unit": "u"}, "unit", "parent"),
]


@pytest.mark.parametrize(("options", "field", "rule"), BAD, ids=[f"{index}-{bad[1]}" for index, bad in enumerate(BAD)])
async def test_a_bad_option_is_refused_with_its_name_and_rule_and_nothing_is_written(
    bench: Bench, options: dict[str, Any], field: str, rule: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        await bench.control.jobs.submit("t", 1, **options)

    assert refusal.value.field == field
    assert rule in str(refusal.value)
    assert await bench.everything() == []


@pytest.mark.parametrize("name", ["", "a b", "n" * 201, "a\x00b", 5, ".x"])
async def test_a_bad_name_is_refused(bench: Bench, name: Any) -> None:
    with pytest.raises(InvalidInput, match="^name: "):
        await bench.control.jobs.submit(name)
    assert await bench.everything() == []


@pytest.mark.parametrize(
    "payload", [object(), 2**70, "\ud800", msgspec.Raw(b"\xc1"), {"deep": [msgspec.Raw(b"\x92\x01")]}, [[...]]]
)
async def test_a_payload_that_cannot_be_stored_or_read_back_is_refused(bench: Bench, payload: Any) -> None:
    with pytest.raises(InvalidInput, match="^payload: "):
        await bench.control.jobs.submit("t", payload)
    assert await bench.everything() == []


class Letter(msgspec.Struct):
    to: object


@dataclasses.dataclass
class Parcel:
    size: object


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"a": [0, 1, 2, {"b": object()}]}, "$.a[3].b cannot be stored as data: Encoding objects of type object"),
        ({"two words": object()}, "$['two words'] cannot be stored as data: "),
        ([Letter(to=object())], "$[0].to cannot be stored as data: "),
        ((1, Parcel(size=2**70)), "$[1].size cannot be stored as data: "),
        ({1: "one"}, "cannot be stored as data: keys must be text, but 1 is int"),
        ({"a": [{None: 1}]}, "$.a[0] cannot be stored as data: keys must be text, but None is NoneType"),
    ],
)
async def test_a_payload_that_cannot_be_stored_is_refused_with_the_place(bench: Bench, payload: Any, why: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        await bench.control.jobs.submit("t", payload)

    assert str(refusal.value).startswith(f"payload: {why}")


async def test_a_payload_within_itself_is_refused(bench: Bench) -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(InvalidInput, match="^payload: cannot be stored as data: nested too deeply, or within itself"):
        await bench.control.jobs.submit("t", endless)


@pytest.mark.parametrize("request_", [("t", {}), "t", None, {"name": "t"}])
async def test_what_is_not_a_request_is_refused_with_what_is_wanted(bench: Bench, request_: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^requests\[1\]: .* is not a request; write JobRequest\(name, payload"):
        await bench.control.jobs.submit_many([JobRequest("t"), request_])
    assert await bench.everything() == []


@pytest.mark.parametrize("requests", [None, 5, JobRequest("t")])
async def test_what_is_not_a_list_of_requests_is_refused(bench: Bench, requests: Any) -> None:
    with pytest.raises(InvalidInput, match="^requests: .* is not a list of requests"):
        await bench.control.jobs.submit_many(requests)


async def test_a_conflict_of_one_job_has_no_index(bench: Bench) -> None:
    held = await bench.control.jobs.submit("t", 1, key="k", unique="u")

    with pytest.raises(KeyConflict, match="^idempotency key 'k' of t was used before"):
        await bench.control.jobs.submit("t", 2, key="k")
    with pytest.raises(UniqueClash, match=f"^job {held.id} holds the unique key"):
        await bench.control.jobs.submit("t", 2, unique="u", on_clash="refuse")
    with pytest.raises(InvalidInput, match="^parent: there is no job"):
        await bench.control.jobs.submit("t", parent=NOBODY, unit="a")


async def test_a_conflict_of_a_batch_names_the_request(bench: Bench) -> None:
    await bench.control.jobs.submit("t", 1, key="k", unique="u")
    fine = JobRequest("t", 0)

    with pytest.raises(KeyConflict, match=r"^requests\[1\]: idempotency key 'k'"):
        await bench.control.jobs.submit_many([fine, JobRequest("t", 2, {"key": "k"})])
    with pytest.raises(UniqueClash, match=r"^requests\[2\]: job .* holds the unique key"):
        await bench.control.jobs.submit_many([fine, fine, JobRequest("t", 2, {"unique": "u", "on_clash": "refuse"})])
    with pytest.raises(InvalidInput, match=r"^requests\[1\]\.parent: there is no job") as refusal:
        await bench.control.jobs.submit_many([fine, JobRequest("t", 2, {"parent": NOBODY, "unit": "a"})])
    assert refusal.value.field == "requests[1].parent"
    assert len(await bench.everything()) == 1


async def test_a_stall_may_be_held_when_the_settings_bring_the_stall_timeout(bench: Bench) -> None:
    control = Control(bench.store, settings=Settings.of(stall_timeout="5m"))

    assert control.jobs.plan(on_stall="hold").options.on_stall == "hold"


async def test_an_oversize_payload_is_refused_with_the_limit(bench: Bench) -> None:
    small = Control(bench.store, settings=Settings(payload_limit=100))

    with pytest.raises(PayloadTooLarge, match="limit of 100"):
        await small.jobs.submit("t", "x" * 100)
    assert await bench.everything() == []


async def test_replace_is_refused_where_it_could_not_be_carried_out(bench: Bench) -> None:
    replacing = JobRequest("t", 1, {"unique": "u", "on_clash": "replace"})

    with pytest.raises(InvalidInput) as refused:
        bench.control.jobs.new_jobs([JobRequest("t"), replacing])
    assert refused.value.field == "requests[1].on_clash"
    [outcome] = await bench.worker.attempts.complete([Completion(await bench.claimed(), spawn=(replacing,))])
    assert outcome.outcome == "invalid"
    assert "on_clash" in str(outcome.error)


async def test_a_unit_of_a_job_that_is_not_there_is_refused_by_name(bench: Bench) -> None:
    gone = await bench.control.jobs.submit("t")
    await bench.control.operations.delete(gone.id, actor="ann", reason="a mistake")

    with pytest.raises(InvalidInput) as refused:
        await bench.control.jobs.submit("t", parent=gone.id, unit="a")
    assert refused.value.field == "parent"
    with pytest.raises(InvalidInput) as refused:
        await bench.control.jobs.submit_many([JobRequest("t"), JobRequest("t", None, {"parent": gone.id, "unit": "a"})])
    assert refused.value.field == "requests[1].parent"
    assert await bench.everything() == []


async def test_a_kind_that_does_not_exist_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="kind: 'banana' is not one of task, batch, load"):
        await bench.control.jobs.submit("t", kind="banana")


async def test_a_payload_that_is_encoded_already_is_stored_as_it_is(bench: Bench) -> None:
    data = msgspec.msgpack.encode({"b": 1, "a": 2})
    made = await bench.control.jobs.submit("demo", msgspec.Raw(data))
    assert (await bench.control.jobs.get(made.id)).payload == data


async def test_an_encoded_payload_that_is_no_msgpack_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="payload: could not be read back"):
        await bench.control.jobs.submit("demo", msgspec.Raw(b"\xc1"))


@pytest.mark.parametrize(
    ("payload", "where"),
    [
        (msgspec.msgpack.Ext(5, b"aa"), ""),
        ({"a": [1, msgspec.msgpack.Ext(5, b"aa")]}, "$.a[1] "),
        (msgspec.Raw(msgspec.msgpack.encode([msgspec.msgpack.Ext(5, b"")])), ""),
        # sealed is all of it, or nothing
        ({"a": msgspec.msgpack.Ext(77, b"aa")}, "$.a "),
    ],
)
async def test_an_extension_type_in_a_payload_is_refused(bench: Bench, payload: Any, where: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await bench.control.jobs.submit("demo", payload)
    assert refused.value.field == "payload"
    assert refused.value.rule.startswith(f"{where}cannot be stored as data: extension types of MessagePack")
    assert await bench.everything() == []


async def test_a_sealed_payload_is_stored(bench: Bench) -> None:
    sealed = msgspec.msgpack.encode(msgspec.msgpack.Ext(77, b"aa"))
    made = await bench.control.jobs.submit("demo", msgspec.Raw(sealed))
    assert (await bench.control.jobs.get(made.id)).payload == sealed


async def test_a_sealed_payload_is_told_from_another_by_its_content(bench: Bench) -> None:
    """A codec seals the same arguments differently each time; what they say is the same."""

    def sealed(nonce: bytes, content: bytes) -> JobRequest:
        payload = msgspec.Raw(msgspec.msgpack.encode(nonce))
        return JobRequest("demo", payload, {"key": "k"}, content)

    [first] = await bench.control.jobs.submit_many([sealed(b"1", b"same")])
    [again] = await bench.control.jobs.submit_many([sealed(b"2", b"same")])
    assert (again.id, again.created) == (first.id, False)
    with pytest.raises(KeyConflict):
        await bench.control.jobs.submit_many([sealed(b"3", b"other")])


async def test_a_sealed_payload_is_unique_by_its_content(bench: Bench) -> None:
    def sealed(nonce: bytes, content: bytes) -> JobRequest:
        return JobRequest("demo", nonce, {"unique": True}, content)

    made = await bench.control.jobs.submit_many([sealed(b"1", b"same"), sealed(b"2", b"same"), sealed(b"2", b"other")])
    assert [each.created for each in made] == [True, False, True]


async def test_content_must_be_bytes(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="content: must be bytes, not str"):
        await bench.control.jobs.submit_many([JobRequest("demo", None, {}, "text")])  # type: ignore[arg-type]


# how safe it is to be -------------------------------------------------------------------------------


async def test_what_the_store_cannot_give_is_refused_and_nothing_is_stored(bench: Bench) -> None:
    for submit in (
        bench.control.jobs.submit("t", durability="applied"),
        bench.control.jobs.submit_many([JobRequest("t"), JobRequest("t", options={"durability": "applied"})]),
        bench.control.jobs.submit_group([JobRequest("t", options={"durability": "applied"})], JobRequest("then")),
    ):
        with pytest.raises(InvalidInput, match="durability: 'applied' cannot be given here"):
            await submit
    with pytest.raises(InvalidInput, match="'safe' is not one of local, replicated, applied"):
        await bench.control.jobs.submit("t", durability="safe")
    with pytest.raises(InvalidInput, match="on_clash='replace' may cancel a job"):
        await bench.control.jobs.submit("t", unique="u", on_clash="replace", durability="local")

    assert (await bench.control.store.stats()).queues == {}


async def test_an_answer_says_what_it_survives(bench: Bench) -> None:
    assert (await bench.control.jobs.submit("t")).durability == bench.control.store.durability
