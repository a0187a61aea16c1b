"""What happened to a job, and how it ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mainstay.control import Completion, Failure
from mainstay.model import Job
from mainstay.web.security.tokens import Tokens
from tests.web.conftest import Server, serving

NOBODY = "018bcfe5-6800-7000-8000-0123456789ab"


async def started(server: Server, job_id: str) -> Job:
    session = await server.control.claims.open_session(worker="w")
    (job,) = await server.control.claims.claim(["default"], session.id, 1)
    assert job.id == job_id
    await server.control.claims.start([job])
    return job


async def test_events_are_read_on_from_any_number(stored: Server) -> None:
    made = await stored.control.jobs.submit("a")
    for n in range(4):
        await stored.control.operations.set_priority(made.id, n + 1, actor="ann")
    path = f"/api/v1/jobs/{made.id}/events"
    whole = (await stored.client.get(path)).json()
    assert [event["seq"] for event in whole["events"]] == [1, 2, 3, 4, 5]
    assert whole["next"] is None
    assert whole["events"][1]["actor"] == "ann"
    part = (await stored.client.get(path, params={"after": 1, "limit": 2})).json()
    assert [event["seq"] for event in part["events"]] == [2, 3]
    rest = (await stored.client.get(path, params={"after": part["next"]})).json()
    assert part["events"] + rest["events"] == whole["events"][1:]


async def test_a_result_is_refused_until_the_job_is_settled_and_then_told(stored: Server) -> None:
    made = await stored.control.jobs.submit("a")
    path = f"/api/v1/jobs/{made.id}/result"
    early = await stored.client.get(path)
    assert (early.status_code, early.json()["type"], early.json()["job_status"]) == (409, "not_settled", "pending")
    assert early.headers["retry-after"] == "2"
    job = await started(stored, made.id)
    await stored.control.attempts.complete([Completion(job, result={"sum": 3, "token": "t"})])
    found = await stored.client.get(path)
    assert found.status_code == 200
    assert found.json() == {
        "id": made.id,
        "status": "succeeded",
        "reason": None,
        "result": {"sum": 3, "token": "t"},
        "error": None,
        "shown": "whole",
    }


async def test_whoever_may_only_read_is_told_a_masked_result_and_that_it_is(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    only_reads = tokens.add("eve", ["read"])
    async with serving(tokens=tokens) as server:
        made = await server.control.jobs.submit("a")
        job = await started(server, made.id)
        await server.control.attempts.complete([Completion(job, result={"sum": 3, "token": "t"})])
        async with server.as_(only_reads) as reader:
            found = (await reader.get(f"/api/v1/jobs/{made.id}/result")).json()

    assert (found["result"], found["shown"]) == ({"sum": 3, "token": "***"}, "masked")


async def test_the_result_of_a_failed_job_is_its_error(stored: Server) -> None:
    made = await stored.control.jobs.submit("a", retries=0)
    job = await started(stored, made.id)
    await stored.control.attempts.fail([Failure(job, ValueError("out of paper"))])
    found = (await stored.client.get(f"/api/v1/jobs/{made.id}/result")).json()
    assert (found["status"], found["result"]) == ("quarantined", None)
    assert found["error"]["message"] == "out of paper"


async def test_whoever_waits_for_a_result_gets_it_when_it_is_there(stored: Server) -> None:
    made = await stored.control.jobs.submit("a")
    waiting = asyncio.ensure_future(stored.client.get(f"/api/v1/jobs/{made.id}/result", params={"wait": "20s"}))
    job = await started(stored, made.id)
    assert not waiting.done()
    await stored.control.attempts.complete([Completion(job, result=7)])
    assert (await waiting).json()["result"] == 7


async def test_nobody_waits_longer_than_they_say_nor_than_half_a_minute(server: Server) -> None:
    made = await server.control.jobs.submit("a")
    path = f"/api/v1/jobs/{made.id}/result"
    assert (await server.client.get(path, params={"wait": "1ms"})).status_code == 409
    refused = await server.client.get(path, params={"wait": "31s"})
    assert (refused.status_code, refused.json()["field"]) == (422, "wait")


async def test_story_and_explanation_are_those_of_the_library(stored: Server) -> None:
    made = await stored.control.jobs.submit("a", queue="mail")
    told = (await stored.client.get(f"/api/v1/jobs/{made.id}/story")).json()
    assert told == {"lines": await stored.control.jobs.story(made.id), "refusals": []}
    explained = (await stored.client.get(f"/api/v1/jobs/{made.id}/explain")).json()
    assert explained["sections"][1]["sentences"] == ["No worker is alive on this store: no session is open."]
    assert explained["advice"][0]["command"].startswith("mainstay worker")


async def test_what_a_job_waits_for_is_listed(stored: Server) -> None:
    first = (await stored.control.jobs.submit("a")).id
    second = (await stored.control.jobs.submit("b", after=[first])).id
    assert (await stored.client.get(f"/api/v1/jobs/{second}/awaited")).json() == {"ids": [first]}


async def test_a_deleted_job_still_has_its_tombstone(stored: Server) -> None:
    made = await stored.control.jobs.submit("a")
    await stored.control.operations.delete(made.id, actor="ann", reason="personal data")
    (event,) = (await stored.client.get(f"/api/v1/jobs/{made.id}/events")).json()["events"]
    assert (event["flag"], event["reason"]) == ("tombstone", "personal data")
    assert (await stored.client.get(f"/api/v1/jobs/{made.id}/explain")).json()["status"] is None
    assert (await stored.client.get(f"/api/v1/jobs/{made.id}")).status_code == 404


async def test_a_job_that_is_not_there_is_not_found_anywhere(stored: Server) -> None:
    for part in ("", "/events", "/result", "/story", "/explain", "/awaited", "/units", "/batch", "/summary"):
        answer = await stored.client.get(f"/api/v1/jobs/{NOBODY}{part}")
        assert (answer.status_code, answer.json()["type"]) == (404, "job_not_found"), part
