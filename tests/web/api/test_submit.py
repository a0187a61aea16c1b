"""Submitting over HTTP."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainstay.control import decoded
from mainstay.model import Job, Offer
from tests.web.conftest import Server

EXTENSION = msgspec.msgpack.Ext(5, b"aa")


async def test_a_submitted_job_is_there_for_the_library_with_all_its_options(stored: Server) -> None:
    body = {
        "name": "mail.send",
        "payload": {"to": "a@b.c", "n": [1, 2.5, None, True]},
        "queue": "mail",
        "priority": 7,
        "retries": 5,
        "timeout": "30s",
        "stall_timeout": "off",
        "tags": ["a", "b"],
        "metadata": {"order": "17"},
        "keep": "2d",
        "concurrency_key": "tenant-7",
    }
    answer = await stored.client.post("/api/v1/jobs", json=body)
    assert answer.status_code == 201
    job = await stored.control.jobs.get(answer.json()["id"])
    assert (job.name, job.queue, job.priority, job.concurrency_key) == ("mail.send", "mail", 7, "tenant-7")
    assert decoded(job.payload) == body["payload"]
    options = job.options
    assert (options.retry.retries, options.run_timeout_s, options.stall_timeout_s) == (5, 30.0, None)
    assert (options.tags, options.metadata, options.keep_s) == (("a", "b"), {"order": "17"}, 172800.0)


async def test_the_answer_says_where_the_job_is_and_at_which_version(server: Server) -> None:
    answer = await server.client.post("/api/v1/jobs", json={"name": "a"})
    assert answer.headers["location"] == f"/api/v1/jobs/{answer.json()['id']}"
    found = await server.client.get(answer.headers["location"])
    assert found.json()["id"] == answer.json()["id"]
    assert found.headers["etag"] == answer.headers["etag"] == '"1"'


async def test_the_same_key_submits_once_and_other_content_under_it_is_refused(stored: Server) -> None:
    send, headers = stored.client.post, {"Idempotency-Key": "order-17"}
    first = await send("/api/v1/jobs", json={"name": "a", "payload": {"n": 1}}, headers=headers)
    again = await send("/api/v1/jobs", json={"name": "a", "payload": {"n": 1}}, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["etag"] == '"1"'
    other = await send("/api/v1/jobs", json={"name": "a", "payload": {"n": 2}}, headers=headers)
    assert (other.status_code, other.json()["type"]) == (409, "key_conflict")


async def test_a_key_of_the_body_that_is_not_that_of_the_header_is_refused(server: Server) -> None:
    body = {"name": "a", "key": "one"}
    answer = await server.client.post("/api/v1/jobs", json=body, headers={"Idempotency-Key": "two"})
    assert (answer.status_code, answer.json()["field"]) == (422, "key")


async def test_what_is_submitted_is_submitted_in_the_name_of_the_caller(server: Server) -> None:
    job_id = (await server.client.post("/api/v1/jobs", json={"name": "a"})).json()["id"]
    assert [event.actor for event in await server.control.jobs.events(job_id)] == ["web:local"]


async def test_a_job_that_waits_for_another_is_told_with_the_version_it_has(stored: Server) -> None:
    first = (await stored.client.post("/api/v1/jobs", json={"name": "a"})).json()["id"]
    await stored.client.post(f"/api/v1/jobs/{first}/cancel")
    body = {"name": "b", "after": [first], "after_when": "settled"}
    answer = await stored.client.post("/api/v1/jobs", json=body)
    found = await stored.client.get(answer.headers["location"])
    assert found.json()["status"] == "pending"
    assert answer.headers["etag"] == found.headers["etag"]


@pytest.mark.parametrize(
    ("more", "field", "words"),
    [
        ({"queu": "mail"}, "queu", "did you mean 'queue'?"),
        ({"retries": "5"}, "retries", "expected int, got str"),
        ({"retries": -1}, "retries", ">= 0"),
        ({"priority": 101}, "priority", "<= 100"),
        ({"timeout": "5"}, "timeout", "with a unit: 30s"),
        ({"delay": 5}, "delay", "expected str, got int"),
        ({"run_at": "2030-01-01T00:00:00"}, "run_at", "timezone"),
        ({"queue_deadline": "soon"}, "queue_deadline", "not a duration"),
        ({"queue": "a b"}, "queue", "letters, digits and _ . : / - only"),
        ({"tags": ["ok", 7]}, "tags[1]", "expected str, got int"),
        ({"metadata": {"a": 1}}, "metadata[...]", "expected str, got int"),
        ({"on_clash": "refuse"}, "on_clash", "needs `unique`"),
        ({"delay": "1s", "run_at": "2030-01-01T00:00:00Z"}, "delay", "not both"),
        ({"after": ["x"]}, "after[0]", "a UUIDv7"),
        ({"unique": 5}, "unique", "got int"),
        ({"name": ""}, "name", "length >= 1"),
        ({"payload": 2**70}, "payload", "cannot be stored"),
        ({"kind": "batch"}, "kind", "unknown option"),
    ],
)
async def test_what_is_not_accepted_is_refused_by_its_field(
    server: Server, more: dict[str, Any], field: str, words: str
) -> None:
    answer = await server.client.post("/api/v1/jobs", json={"name": "a", **more})
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["field"]) == (422, 422, field)
    assert words in problem["detail"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert (await server.control.store.stats()).queues == {}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/jobs", {"name": "a", "payload": EXTENSION}, "payload"),
        ("/jobs", {"name": "a", "payload": {"x": [EXTENSION]}}, "payload"),
        ("/jobs/bulk", {"jobs": [{"name": "a"}, {"name": "a", "payload": {"x": EXTENSION}}]}, "jobs[1].payload"),
        ("/groups", {"members": [{"name": "a", "payload": [EXTENSION]}], "then": {"name": "b"}}, "members[0].payload"),
    ],
)
async def test_an_extension_type_of_messagepack_in_a_payload_is_refused(
    server: Server, path: str, body: dict[str, Any], field: str
) -> None:
    headers = {"Content-Type": "application/msgpack"}
    answer = await server.client.post(f"/api/v1{path}", content=msgspec.msgpack.encode(body), headers=headers)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert "extension types of MessagePack are not accepted (type 5)" in answer.json()["detail"]
    assert (await server.control.store.stats()).queues == {}


async def test_a_deadline_may_be_a_time(server: Server) -> None:
    body = {"name": "a", "queue_deadline": "2100-01-01T00:00:00Z"}
    job_id = (await server.client.post("/api/v1/jobs", json=body)).json()["id"]
    assert (await server.control.jobs.get(job_id)).options.start_by_ms == 4102444800000


async def test_many_are_stored_in_order_and_say_which_were_there(stored: Server) -> None:
    await stored.client.post("/api/v1/jobs", json={"name": "a", "key": "k"})
    body = {"jobs": [{"name": "a", "payload": {"n": 1}}, {"name": "a", "key": "k"}, {"name": "b"}]}
    answer = await stored.client.post("/api/v1/jobs/bulk", json=body)
    assert (answer.status_code, answer.json()["created"]) == (201, 2)
    assert [each["created"] for each in answer.json()["jobs"]] == [True, False, True]
    found = await stored.control.jobs.get_many([each["id"] for each in answer.json()["jobs"]])
    assert [job.name for job in found] == ["a", "a", "b"]


async def test_many_that_are_sent_again_with_their_key_are_submitted_once(stored: Server) -> None:
    async def send(*jobs: dict[str, Any], key: str = "order-17") -> Any:
        return await stored.client.post("/api/v1/jobs/bulk", json={"jobs": jobs}, headers={"Idempotency-Key": key})

    one, two, own = {"name": "a"}, {"name": "a", "payload": {"n": 2}}, {"name": "a", "key": "mine"}
    first, again = await send(one, two, own), await send(one, two, own)
    assert (first.status_code, again.status_code) == (201, 200)
    assert [each["id"] for each in again.json()["jobs"]] == [each["id"] for each in first.json()["jobs"]]
    assert again.json()["created"] == 0
    other = await send(one, one, own)
    assert (other.status_code, other.json()["type"], other.json()["field"]) == (409, "key_conflict", "jobs[1]")
    assert (await send(one, key="x" * 251)).json()["field"] == "Idempotency-Key"
    # also where nothing would be stored under it
    for jobs in ((one,), (own,), ()):
        refused = await send(*jobs, key="a\tb")
        assert (refused.status_code, refused.json()["field"]) == (422, "Idempotency-Key")


@pytest.mark.parametrize(
    "other",
    [
        [{"name": "a"}],
        [{"name": "a"}, {"name": "b"}, {"name": "a"}],
        [{"name": "a"}, {"name": "c"}],
        [{"name": "c"}, {"name": "b"}],
    ],
    ids=["fewer", "more", "another task last", "another task first"],
)
async def test_the_key_of_many_is_for_the_list_as_a_whole(stored: Server, other: list[dict[str, Any]]) -> None:
    headers = {"Idempotency-Key": "order-17"}
    first = [{"name": "a"}, {"name": "b"}]
    await stored.client.post("/api/v1/jobs/bulk", json={"jobs": first}, headers=headers)

    refused = await stored.client.post("/api/v1/jobs/bulk", json={"jobs": other}, headers=headers)
    again = await stored.client.post("/api/v1/jobs/bulk", json={"jobs": first}, headers=headers)

    assert (refused.status_code, refused.json()["type"]) == (409, "key_conflict")
    assert "the Idempotency-Key 'order-17' was used for another list" in refused.json()["detail"]
    assert (again.status_code, again.json()["created"]) == (200, 0)
    assert len((await stored.client.get("/api/v1/jobs")).json()["jobs"]) == 2


async def test_a_key_does_not_look_at_options_and_is_another_for_another_task(stored: Server) -> None:
    async def send(path: str, job: dict[str, Any]) -> Any:
        body = {"jobs": [job]} if path == "/jobs/bulk" else job
        return await stored.client.post(f"/api/v1{path}", json=body, headers={"Idempotency-Key": f"of{path}"})

    for path in ("/jobs", "/jobs/bulk"):
        sent = [await send(path, {"name": "a"}), await send(path, {"name": "a", "queue": "mail", "priority": 5})]
        assert [answer.status_code for answer in sent] == [201, 200]
        assert (await send(path, {"name": "b"})).status_code == 201


async def test_what_is_unique_by_its_payload_is_so_in_any_list(stored: Server) -> None:
    job = {"name": "a", "payload": {"n": 1}, "unique": True}
    first = (await stored.client.post("/api/v1/jobs", json=job)).json()["id"]
    body, headers = {"jobs": [job, {"name": "b"}]}, {"Idempotency-Key": "order-17"}
    answer = await stored.client.post("/api/v1/jobs/bulk", json=body, headers=headers)
    assert answer.json()["jobs"][0]["id"] == first


async def test_two_keys_of_one_request_are_refused(server: Server) -> None:
    headers = [("Idempotency-Key", "one"), ("Idempotency-Key", "two")]
    answer = await server.client.post("/api/v1/jobs", json={"name": "a"}, headers=headers)
    assert (answer.status_code, answer.json()["field"]) == (422, "Idempotency-Key")


@pytest.mark.parametrize(
    ("bad", "field", "status"),
    [
        ({"name": "a", "queu": "x"}, "jobs[1].queu", 422),
        ({"name": "a", "queue_deadline": "soon"}, "jobs[1].queue_deadline", 422),
        ({"name": "a", "on_clash": "refuse"}, "jobs[1].on_clash", 422),
        ({"name": "a", "payload": 2**70}, "jobs[1].payload", 422),
        ({"name": "a", "key": "k", "payload": 1}, "jobs[1]", 409),
        ({"name": "a", "after": ["018bcfe5-6800-7000-8000-0123456789ab"]}, "jobs[1].after[0]", 422),
    ],
)
async def test_of_many_all_are_stored_or_none_and_the_bad_one_is_named(
    stored: Server, bad: dict[str, Any], field: str, status: int
) -> None:
    await stored.client.post("/api/v1/jobs", json={"name": "a", "key": "k"})
    answer = await stored.client.post("/api/v1/jobs/bulk", json={"jobs": [{"name": "a"}, bad]})
    assert (answer.status_code, answer.json()["field"]) == (status, field)
    page = (await stored.client.get("/api/v1/jobs")).json()
    assert len(page["jobs"]) == 1


async def test_more_than_the_limit_of_one_request_are_refused(server: Server) -> None:
    jobs = [{"name": "a"}] * (server.site.options.bulk_limit + 1)
    answer = await server.client.post("/api/v1/jobs/bulk", json={"jobs": jobs})
    assert (answer.status_code, answer.json()["field"]) == (422, "jobs")
    assert (await server.control.store.stats()).queues == {}


async def test_a_payload_over_the_limit_of_the_store_is_too_large(server: Server) -> None:
    answer = await server.client.post("/api/v1/jobs", json={"name": "a", "payload": "x" * 1_500_000})
    assert (answer.status_code, answer.json()["type"]) == (413, "payload_too_large")


# groups -----------------------------------------------------------------------------------------------


async def _group(server: Server, body: dict[str, Any], **headers: str) -> Any:
    return await server.client.post("/api/v1/groups", json=body, headers=headers)


async def test_of_a_group_the_last_one_waits_for_the_others(stored: Server) -> None:
    body = {"members": [{"name": "a"}, {"name": "b"}], "then": {"name": "c", "payload": {"n": 1}}}
    answer = await _group(stored, body)
    assert answer.status_code == 201
    then, members = answer.json()["then"]["id"], [each["id"] for each in answer.json()["members"]]
    first, second, last = await stored.control.jobs.get_many([*members, then])
    assert [(job.name, job.group) for job in (first, second)] == [("a", then), ("b", then)]
    assert (last.name, last.status, decoded(last.payload)) == ("c", "scheduled", {"n": 1})
    assert await stored.control.jobs.awaited(then) == members


async def test_when_and_failed_say_what_the_last_one_waits_for(server: Server) -> None:
    for more in ({"when": "settled"}, {"failed": "fail"}):
        body = {"members": [{"name": "a"}], "then": {"name": "c"}, **more}
        then = (await _group(server, body)).json()["then"]["id"]
        await server.client.post(f"/api/v1/jobs/{(await server.control.jobs.awaited(then))[0]}/cancel")
        status = (await server.control.jobs.get(then)).status
        assert status == ("pending" if "when" in more else "failed")


async def test_a_group_that_is_sent_again_with_its_key_is_submitted_once(stored: Server) -> None:
    body = {"members": [{"name": "a"}, {"name": "b"}], "then": {"name": "c"}}
    first = await _group(stored, body, **{"Idempotency-Key": "order-17"})
    again = await _group(stored, body, **{"Idempotency-Key": "order-17"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["then"]["id"] == first.json()["then"]["id"]
    assert not again.json()["then"]["created"]
    assert [each["id"] for each in again.json()["members"]] == [each["id"] for each in first.json()["members"]]
    assert len((await stored.client.get("/api/v1/jobs")).json()["jobs"]) == 3
    other = await _group(stored, {**body, "members": [{"name": "a"}]}, **{"Idempotency-Key": "order-17"})
    assert (other.status_code, other.json()["type"], other.json()["field"]) == (409, "key_conflict", "then")


@pytest.mark.parametrize(
    ("body", "field", "status"),
    [
        ({"members": [{"name": "c", "key": "order-17"}]}, "then.key", 422),
        ({"members": [{"name": "a"}, {"name": "a", "queu": "x"}]}, "members[1].queu", 422),
        ({"members": [{"name": "a"}, {"name": "a", "queue_deadline": "soon"}]}, "members[1].queue_deadline", 422),
        ({"members": [{"name": "a"}, {"name": "a", "payload": 2**70}]}, "members[1].payload", 422),
        ({"members": [{"name": "a", "key": "k", "payload": 1}]}, "members[0]", 409),
        ({"then": {"name": "c", "queue_deadline": "soon"}}, "then.queue_deadline", 422),
        ({"then": {"name": "c", "after": ["018bcfe5-6800-7000-8000-0123456789ab"]}}, "then.after", 422),
        ({"then": {"name": "c", "key": "another"}}, "then.key", 422),
        ({"when": "never"}, "when", 422),
        ({"when": "settled", "failed": "fail"}, "failed", 422),
        ({"members": None}, "members", 422),
    ],
)
async def test_of_a_group_all_is_stored_or_nothing_and_what_is_wrong_is_named(
    stored: Server, body: dict[str, Any], field: str, status: int
) -> None:
    await stored.client.post("/api/v1/jobs", json={"name": "a", "key": "k"})
    whole = {"members": [{"name": "a"}], "then": {"name": "c"}, **body}
    answer = await _group(stored, whole, **{"Idempotency-Key": "order-17"})
    assert (answer.status_code, answer.json().get("field")) == (status, field)
    assert len((await stored.client.get("/api/v1/jobs")).json()["jobs"]) == 1


async def test_a_key_that_is_none_is_refused_for_a_group_by_its_own_name(server: Server) -> None:
    answer = await _group(server, {"members": [], "then": {"name": "c"}}, **{"Idempotency-Key": "a\tb"})
    assert (answer.status_code, answer.json()["field"]) == (422, "Idempotency-Key")


async def test_a_group_of_more_than_the_limit_of_one_request_is_refused(server: Server) -> None:
    members = [{"name": "a"}] * (server.site.options.bulk_limit + 1)
    answer = await _group(server, {"members": members, "then": {"name": "c"}})
    assert (answer.status_code, answer.json()["field"]) == (422, "members")
    assert (await server.control.store.stats()).queues == {}


async def test_a_task_without_arguments_needs_no_payload(stored: Server) -> None:
    for body in ({"name": "tidy_up"}, {"name": "tidy_up", "payload": None}):
        made = (await stored.client.post("/api/v1/jobs", json=body)).json()
        assert decoded((await stored.control.jobs.get(made["id"])).payload) == {}
    bulk = (await stored.client.post("/api/v1/jobs/bulk", json={"jobs": [{"name": "tidy_up"}]})).json()
    assert decoded((await stored.control.jobs.get(bulk["jobs"][0]["id"])).payload) == {}


async def test_what_is_left_out_is_as_the_task_says_that_a_worker_offers(stored: Server) -> None:
    options = {"queue": "mail", "retries": 7, "timeout": "5m", "tags": ["a"], "unheard_of": 1}
    await stored.control.claims.open_session(worker="w", offer=Offer(queues=("mail",), tasks={"mail.send": options}))

    async def submitted(**more: Any) -> Job:
        made = await stored.client.post("/api/v1/jobs", json={"name": "mail.send", "payload": {}, **more})
        assert made.status_code == 201
        return await stored.control.jobs.get(made.json()["id"])

    job = await submitted()
    assert (job.queue, job.options.retry.retries, job.options.run_timeout_s) == ("mail", 7, 300)
    assert job.options.tags == ("a",)
    own = await submitted(queue="express", retries=0, tags=["b"])
    assert (own.queue, own.options.retry.retries, own.options.tags) == ("express", 0, ("a", "b"))
    group = {"members": [{"name": "mail.send"}], "then": {"name": "mail.send"}}
    made = (await stored.client.post("/api/v1/groups", json=group)).json()
    for each in (*made["members"], made["then"]):
        assert (await stored.control.jobs.get(each["id"])).queue == "mail"
    other = (await stored.client.post("/api/v1/jobs", json={"name": "unheard.of"})).json()
    assert (await stored.control.jobs.get(other["id"])).queue == "default"
