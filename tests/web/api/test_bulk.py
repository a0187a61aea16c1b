"""Doing one thing to many jobs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.conftest import Server, serving

ACTIONS = "/api/v1/jobs/actions"


async def statuses(server: Server, made: list[str]) -> list[str]:
    return [job.status for job in await server.control.jobs.get_many(made)]


async def failed(server: Server, n: int, **options: Any) -> list[str]:
    made = [(await server.control.jobs.submit("a", **options)).id for _ in range(n)]
    for job_id in made:
        await server.control.operations.force(job_id, "failed", actor="t", reason="for the test")
    return made


async def test_a_preview_counts_and_shows_and_does_nothing(stored: Server) -> None:
    made = await failed(stored, 12, queue="mail")
    body = {"action": "retry", "filter": {"queue": "mail"}, "dry_run": True}
    told = (await stored.client.post(ACTIONS, json=body)).json()
    assert (told["dry_run"], told["matched"], told["counts"], told["done"]) == (True, 12, {"failed": 12}, 0)
    assert [job["id"] for job in told["sample"]] == made[:10]
    assert set(await statuses(stored, made)) == {"failed"}
    told = (await stored.client.post(ACTIONS, json={**body, "dry_run": False, "reason": "the printer is back"})).json()
    assert (told["matched"], told["done"], told["refused"], told["more"]) == (12, 12, 0, False)
    assert set(await statuses(stored, made)) == {"pending"}
    event = (await stored.control.jobs.events(made[0]))[-1]
    assert (event.actor, event.reason) == ("web:local", "the printer is back")


async def test_a_filter_without_a_status_means_what_the_action_makes_sense_for(stored: Server) -> None:
    (bad,) = await failed(stored, 1)
    good = (await stored.control.jobs.submit("a")).id
    for action, matched in (("retry", 1), ("cancel", 1), ("delete", 1)):
        body = {"action": action, "filter": {"name": "a"}, "dry_run": True}
        told = (await stored.client.post(ACTIONS, json=body)).json()
        assert told["matched"] == matched
        assert [job["id"] for job in told["sample"]] == [good if action == "cancel" else bad]


async def test_by_id_each_is_answered_for(stored: Server) -> None:
    (bad,) = await failed(stored, 1)
    good = (await stored.control.jobs.submit("a")).id
    told = (await stored.client.post(ACTIONS, json={"action": "retry", "ids": [bad, good]})).json()
    assert told["done"] == 2  # one that waits already is as it is to be
    session = await stored.control.claims.open_session(worker="w")
    (held,) = await stored.control.claims.claim(["default"], session.id, 1)
    told = (await stored.client.post(ACTIONS, json={"action": "delete", "ids": [bad, good]})).json()
    assert (told["done"], told["refused"]) == (1, 1)
    (refusal,) = told["refusals"]
    assert (refusal["id"], refusal["outcome"]) == (held.id, "held")
    assert "cancel it first" in refusal["error"]


async def test_one_request_goes_as_far_as_the_limit_and_says_that_there_is_more() -> None:
    async with serving(bulk_limit=5) as server:
        made = await failed(server, 7, tags=["x"])
        body = {"action": "retry", "filter": {"tag": "x"}}
        told = (await server.client.post(ACTIONS, json=body)).json()
        assert (told["matched"], told["done"], told["more"]) == (5, 5, True)
        assert await statuses(server, made) == ["pending"] * 5 + ["failed"] * 2
        told = (await server.client.post(ACTIONS, json=body)).json()
        assert (told["done"], told["more"]) == (2, False)
        many = await server.client.post(ACTIONS, json={"action": "retry", "ids": made[:6]})
        assert (many.status_code, many.json()["field"]) == (422, "ids")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"action": "retry"}, "filter"),
        ({"action": "retry", "filter": {}}, "filter"),
        ({"action": "retry", "filter": {"queue": "a"}, "ids": ["018bcfe5-6800-7000-8000-0123456789ab"]}, "filter"),
        ({"action": "burn", "filter": {"queue": "a"}}, "action"),
        ({"action": "retry", "filter": {"quee": "a"}}, "filter.quee"),
        ({"action": "retry", "filter": {"status": ["faild"]}}, "status"),
        ({"action": "retry", "ids": []}, "ids"),
        ({"action": "retry", "ids": ["x"]}, "ids[0]"),
        ({"action": "retry", "filter": {"queue": "a"}, "limit": 0}, "limit"),
    ],
)
async def test_what_is_not_clear_is_refused(server: Server, body: dict[str, Any], field: str) -> None:
    answer = await server.client.post(ACTIONS, json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_an_id_that_is_not_there_is_said_before_anything_is_done(stored: Server) -> None:
    (bad,) = await failed(stored, 1)
    body = {"action": "retry", "ids": [bad, "018bcfe5-6800-7000-8000-0123456789ab"]}
    assert (await stored.client.post(ACTIONS, json=body)).status_code == 404
    assert await statuses(stored, [bad]) == ["failed"]
