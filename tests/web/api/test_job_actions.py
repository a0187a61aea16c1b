"""What people do to one job."""

from __future__ import annotations

import asyncio

import pytest

from tests.web.conftest import Server


async def path_of(server: Server, **options: object) -> str:
    return f"/api/v1/jobs/{(await server.control.jobs.submit('a', **options)).id}"


async def test_each_change_is_made_in_the_name_of_the_caller_with_its_reason(stored: Server) -> None:
    path = await path_of(stored)
    send = stored.client.post
    assert (await send(f"{path}/priority", json={"priority": 9})).json()["priority"] == 9
    forced = await send(
        f"{path}/force", json={"to": "failed", "reason": "its host burned down"}, headers={"If-Match": "*"}
    )
    assert forced.json()["status"] == "failed"
    assert (await send(f"{path}/retry", json={"reason": "a new host"})).json()["status"] == "pending"
    ended = await send(f"{path}/cancel")
    assert ended.json()["status"] == "cancelled"
    events = (await stored.client.get(f"{path}/events")).json()["events"]
    assert [(event["actor"], event["reason"], event["flag"]) for event in events[1:]] == [
        ("web:local", "priority changed from 0 to 9", "note"),
        ("web:local", "its host burned down", "forced"),
        ("web:local", "a new host", ""),
        ("web:local", "cancelled on request", ""),
    ]
    assert ended.headers["etag"] == f'"{len(events)}"'


async def test_a_change_that_is_meant_for_another_version_changes_nothing(stored: Server) -> None:
    path = await path_of(stored)
    seen = (await stored.client.get(path)).headers["etag"]
    await stored.client.post(f"{path}/priority", json={"priority": 1})
    for change, body in (
        ("cancel", {}),
        ("retry", {}),
        ("priority", {"priority": 2}),
        ("force", {"to": "failed", "reason": "r"}),
    ):
        answer = await stored.client.post(f"{path}/{change}", json=body, headers={"If-Match": seen})
        assert (answer.status_code, answer.json()["type"], answer.json()["version"]) == (412, "version_changed", 2)
    gone = await stored.client.delete(path, headers={"If-Match": seen})
    assert gone.status_code == 412
    assert (await stored.client.get(path)).json()["version"] == 2


async def test_of_two_who_saw_the_same_version_one_is_let_through(stored: Server) -> None:
    path = await path_of(stored)
    answers = await asyncio.gather(
        *(
            stored.client.post(f"{path}/priority", json={"priority": n}, headers={"If-Match": '"1"'})
            for n in range(1, 6)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200, 412, 412, 412, 412]
    assert (await stored.client.get(path)).json()["version"] == 2


async def test_what_cannot_be_undone_needs_the_version_it_is_meant_for(stored: Server) -> None:
    path = await path_of(stored)
    forced = await stored.client.post(f"{path}/force", json={"to": "failed", "reason": "r"})
    gone = await stored.client.delete(path)
    for answer in (forced, gone):
        assert (answer.status_code, answer.json()["type"]) == (428, "if_match_needed")
    assert (await stored.client.delete(path, headers={"If-Match": '"1"'})).json()["deleted"] is True
    assert (await stored.client.get(path)).status_code == 404


async def test_the_reason_of_a_deletion_stays(stored: Server) -> None:
    path = await path_of(stored)
    await stored.client.delete(path, params={"reason": "personal data"}, headers={"If-Match": "*"})
    (event,) = (await stored.client.get(f"{path}/events")).json()["events"]
    assert (event["actor"], event["reason"]) == ("web:local", "personal data")


async def test_a_job_somebody_works_on_is_asked_to_stop_and_not_deleted(stored: Server) -> None:
    path = await path_of(stored)
    session = await stored.control.claims.open_session(worker="w")
    await stored.control.claims.claim(["default"], session.id, 1)
    held = await stored.client.delete(path, headers={"If-Match": "*"})
    assert (held.status_code, held.json()["type"]) == (409, "conflict")
    assert (await stored.client.post(f"{path}/cancel")).json()["status"] == "cancelling"


async def test_a_move_that_the_table_forbids_is_a_conflict_and_tells_the_story(stored: Server) -> None:
    path = await path_of(stored)
    await stored.client.post(f"{path}/cancel")
    answer = await stored.client.post(f"{path}/retry")
    assert (answer.status_code, answer.json()["type"]) == (409, "invalid_transition")
    assert "cancelled on request" in answer.json()["detail"]


async def test_a_state_that_there_is_not_is_refused_with_what_may_be_meant(server: Server) -> None:
    path = await path_of(server)
    body = {"to": "faild", "reason": "r"}
    answer = await server.client.post(f"{path}/force", json=body, headers={"If-Match": "*"})
    assert (answer.status_code, answer.json()["field"]) == (422, "to")
    assert "did you mean 'failed'?" in answer.json()["detail"]


@pytest.mark.parametrize("tag", ["7", "", '"x"', 'w/"1"', '"1", 2', '"1",', '*, "1"', '"99999999999999999999"', '"1'])
async def test_what_is_no_tag_of_a_job_is_refused(server: Server, tag: str) -> None:
    path = await path_of(server)
    answer = await server.client.post(f"{path}/cancel", headers={"If-Match": tag})
    assert (answer.status_code, answer.json()["field"]) == (422, "If-Match")


@pytest.mark.parametrize("tag", ['W/"2"', 'W/"2-0123abcd"', '"1", "2"', 'W/"7","2"', '"2-0123abcd" , W/"1"'])
async def test_a_tag_that_a_proxy_made_weak_and_one_of_several_is_the_version_it_names(
    stored: Server, tag: str
) -> None:
    path = await path_of(stored)
    await stored.client.post(f"{path}/priority", json={"priority": 1})

    meant = await stored.client.post(f"{path}/priority", json={"priority": 2}, headers={"If-Match": tag})
    late = await stored.client.post(f"{path}/priority", json={"priority": 3}, headers={"If-Match": tag})

    assert (meant.status_code, meant.json()["version"]) == (200, 3)
    assert (late.status_code, late.json()["type"], late.json()["version"]) == (412, "version_changed", 3)


async def test_tags_in_two_headers_are_tags_in_one(server: Server) -> None:
    path = await path_of(server)

    answer = await server.client.post(f"{path}/cancel", headers=[("If-Match", '"7"'), ("If-Match", '"1"')])

    assert answer.status_code == 200
