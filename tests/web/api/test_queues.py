"""Queues and limits over HTTP."""

from __future__ import annotations

import logging

import pytest

from tests.web.conftest import Server


async def test_queues_tell_what_waits_who_works_and_why_they_stand_still(stored: Server) -> None:
    await stored.control.jobs.submit("a", queue="mail")
    await stored.control.jobs.submit("a", queue="mail")
    session = await stored.control.claims.open_session(worker="w")
    await stored.control.claims.claim(["mail"], session.id, 1)
    await stored.client.post("/api/v1/queues/night/pause", json={"reason": "not before ten"})
    seen = (await stored.client.get("/api/v1/queues")).json()
    mail, night = seen["queues"]
    assert (mail["name"], mail["counts"], mail["sessions_at_work"]) == ("mail", {"running": 1, "pending": 1}, 1)
    assert mail["oldest_ready_ms"] is not None
    assert (night["paused"], night["reason"], night["counts"]) == (True, "not before ten", {})
    assert (await stored.client.get("/api/v1/queues/mail")).json() == mail


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(stored: Server) -> None:
    await stored.control.jobs.submit("a", queue="team/mail")
    session = await stored.control.claims.open_session(worker="w")
    # a name may have a slash in it, as it is or encoded
    paused = await stored.client.post("/api/v1/queues/team%2Fmail/pause")
    at_ms = paused.json()["set_ms"]
    assert paused.json() == {
        "name": "team/mail",
        "paused": True,
        "reason": None,
        "set_by": "web:local",
        "set_ms": at_ms,
    }
    listed = (await stored.client.get("/api/v1/queues/team%2Fmail")).json()
    assert (listed["set_by"], listed["set_ms"]) == ("web:local", at_ms)
    assert await stored.control.claims.claim(["team/mail"], session.id, 1) == []
    resumed = await stored.client.post("/api/v1/queues/team/mail/resume")
    assert resumed.json()["paused"] is False
    assert len(await stored.control.claims.claim(["team/mail"], session.id, 1)) == 1


async def test_whoever_changes_a_queue_is_in_the_log(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mainstay.web.audit")
    await server.client.post("/api/v1/queues/mail/pause")
    await server.client.get("/api/v1/queues")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "mainstay.web.audit"]
    assert line == "did=pause_queue actor=web:local store=main path=/api/v1/queues/mail/pause"


async def test_a_purge_takes_what_waits_and_nothing_else(stored: Server) -> None:
    made = [(await stored.control.jobs.submit("a", queue="mail")).id for _ in range(3)]
    other = (await stored.control.jobs.submit("a", queue="other")).id
    session = await stored.control.claims.open_session(worker="w")
    (held,) = await stored.control.claims.claim(["mail"], session.id, 1)
    look = (await stored.client.post("/api/v1/queues/mail/purge", json={"dry_run": True})).json()
    assert (look["matched"], look["done"]) == (2, 0)
    done = (await stored.client.post("/api/v1/queues/mail/purge")).json()
    assert (done["done"], done["refused"]) == (2, 0)
    rows = {job.id: job.status for job in await stored.control.jobs.get_many([*made, other])}
    assert rows == {made[0]: "running", made[1]: "cancelled", made[2]: "cancelled", other: "pending"}
    assert held.id == made[0]
    await stored.client.post("/api/v1/queues/other/purge", json={"delete": True})
    assert (await stored.client.get(f"/api/v1/jobs/{other}")).status_code == 404


@pytest.mark.parametrize("change", ["resume", "purge"])
async def test_a_queue_nobody_has_heard_of_is_not_found(server: Server, change: str) -> None:
    await server.control.jobs.submit("a", queue="mail")
    answer = await server.client.post(f"/api/v1/queues/mial/{change}")
    assert (answer.status_code, answer.json()["type"]) == (404, "queue_not_found")
    assert "known: mail" in answer.json()["detail"]
    assert (await server.client.get("/api/v1/queues/mial")).status_code == 404


async def test_what_cannot_be_a_queue_is_refused(server: Server) -> None:
    for name in ("%00", "a%20b", "%2e%2e%2fetc", "a" * 101):
        answer = await server.client.post(f"/api/v1/queues/{name}/pause")
        assert 400 <= answer.status_code < 500, name
    assert await server.stores.first.store.queues() == []


async def test_limits_are_set_counted_and_lifted(stored: Server) -> None:
    await stored.control.jobs.submit("a", concurrency_key="tenant-7")
    session = await stored.control.claims.open_session(worker="w")
    await stored.control.claims.claim(["default"], session.id, 1)
    await stored.client.post("/api/v1/limits", json={"key": "tenant-7", "limit": 3})
    (limit,) = (await stored.client.get("/api/v1/limits")).json()["limits"]
    assert limit == {"key": "tenant-7", "limit": 3, "held": 1, "counted": True}
    await stored.client.post("/api/v1/limits", json={"key": "tenant-7", "limit": None})
    assert (await stored.client.get("/api/v1/limits")).json() == {"limits": []}
    refused = await stored.client.post("/api/v1/limits", json={"key": "tenant-7"})
    assert (refused.status_code, refused.json()["field"]) == (422, "limit")
