"""A store as a whole, over HTTP."""

from __future__ import annotations

import logging
from pathlib import Path

import apsw
import pytest

from mainstay.model import Offer, private_queue
from tests.web.conftest import Server, serving


async def test_workers_are_listed_with_what_they_run(stored: Server) -> None:
    made = await stored.control.jobs.submit("a.b", {"password": "x"})
    session = await stored.control.claims.open_session(worker="w-1", host="here", pid=17)
    idle = await stored.control.claims.open_session(worker="w-2")
    await stored.control.claims.claim(["default"], session.id, 1)
    first, second = (await stored.client.get("/api/v1/workers")).json()["sessions"]
    assert (first["id"], first["worker"], first["host"], first["pid"]) == (session.id, "w-1", "here", 17)
    assert (first["at_work"], first["holds"], [job["id"] for job in first["jobs"]]) == (True, 1, [made.id])
    assert "payload" not in first["jobs"][0]
    assert (second["id"], second["holds"], second["jobs"]) == (idle.id, 0, [])
    assert "beat_ms" not in first


async def test_a_worker_is_drained_whole_in_the_name_of_whoever_asks(
    stored: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="mainstay.web.audit")
    for supervisor in (10, 10, 20):
        await stored.control.claims.open_session(worker="w-1", host="here", supervisor=supervisor)
    listed = (await stored.client.get("/api/v1/workers")).json()["sessions"]
    # those of one millisecond are in no order of their own
    first, second, other = sorted(listed, key=lambda each: each["supervisor"])
    assert (first["supervisor"], first["draining_ms"], first["draining_by"]) == (10, None, "")

    asked = await stored.client.post(f"/api/v1/workers/{second['id']}/drain")

    assert asked.status_code == 200
    assert [each["id"] for each in asked.json()["sessions"]] == [first["id"], second["id"]]
    seen = {each["id"]: each for each in (await stored.client.get("/api/v1/workers")).json()["sessions"]}
    assert [seen[each["id"]]["draining_by"] for each in (first, second, other)] == ["web:local", "web:local", ""]
    assert seen[first["id"]]["draining_ms"] is not None
    assert f"did=drain_worker actor=web:local store=main path=/api/v1/workers/{second['id']}/drain" in caplog.text
    by_name = (await stored.client.post("/api/v1/workers/w-1/drain")).json()["sessions"]
    assert len(by_name) == 3


async def test_a_worker_that_is_not_there_cannot_be_drained(stored: Server) -> None:
    answer = await stored.client.post("/api/v1/workers/nobody/drain")
    assert (answer.status_code, answer.json()["type"]) == (404, "worker_not_found")
    assert "mainstay workers list" in answer.json()["detail"]


async def test_workers_say_which_queues_and_tasks_they_serve(stored: Server) -> None:
    offer = Offer(queues=("mail",), tasks={"b": {"queue": "mail"}, "a": {}})
    await stored.control.claims.open_session(worker="w-1", offer=offer)
    await stored.control.claims.open_session(worker="w-2")
    first, second = (await stored.client.get("/api/v1/workers")).json()["sessions"]
    assert (first["queues"], first["tasks"]) == (["mail"], ["a", "b"])
    assert (second["queues"], second["tasks"]) == (None, None)


async def test_stats_name_what_no_live_worker_takes(stored: Server) -> None:
    await stored.control.jobs.submit("a", queue="night")
    await stored.control.jobs.submit("unheard.of", queue="mail")
    offer = Offer(queues=("mail",), tasks={"a": {}})
    session = await stored.control.claims.open_session(worker="w-1", offer=offer)
    assert await stored.control.claims.claim(["mail"], session.id, 1) == []

    found = (await stored.client.get("/api/v1/stats")).json()

    assert "routed" not in found
    assert found["unserved"] == [
        {"queue": "night", "task": None, "jobs": 1, "text": "no live worker listens on queue night: 1 job waits"},
        {
            "queue": "mail",
            "task": "unheard.of",
            "jobs": 1,
            "text": "no live worker knows unheard.of: 1 job waits in queue mail",
        },
    ]


async def test_stats_leave_out_the_queue_of_one_load_run(stored: Server) -> None:
    await stored.control.jobs.submit("Shop", queue=private_queue("3f9c"))
    await stored.control.jobs.submit("a")
    assert list((await stored.client.get("/api/v1/stats")).json()["queues"]) == ["default"]


async def test_stats_tell_counts_paused_queues_and_limits(stored: Server) -> None:
    await stored.control.jobs.submit("a", queue="mail")
    await stored.control.operations.pause("night")
    await stored.control.operations.set_limit("tenant", 3)
    await stored.control.claims.open_session(worker="w")
    found = (await stored.client.get("/api/v1/stats")).json()
    assert found["queues"]["mail"]["counts"] == {"pending": 1}
    assert (found["queues"]["mail"]["paused"], found["queues"]["night"]["paused"]) == (False, True)
    assert (found["live_sessions"], len(found["sessions"]), found["limits"]) == (1, 1, {"tenant": 3})


async def test_a_check_finds_what_is_wrong_and_says_so(tmp_path: Path) -> None:
    async with serving({"main": f"sqlite:///{tmp_path / 'jobs.db'}"}) as server:
        made = await server.control.jobs.submit("a")
        clean = (await server.client.post("/api/v1/check")).json()
        assert (clean["clean"], clean["checked"], clean["violations"]) == (True, 1, [])
        _damage(tmp_path / "jobs.db", made.id)
        found = (await server.client.post("/api/v1/check")).json()
        assert found["clean"] is False
        assert found["violations"][0]["job_id"] == made.id
        assert found["violations"][0]["repaired"] is None


def _damage(file: Path, job_id: str) -> None:
    connection = apsw.Connection(str(file))
    connection.execute("UPDATE events SET reason = 'nothing to see here' WHERE job_id = ?", [job_id])
    connection.close()


async def test_a_store_that_does_not_answer_is_no_fault_of_the_caller(stored: Server) -> None:
    made = await stored.control.jobs.submit("a")
    await stored.stores.first.store.close()
    for path in ("/jobs", f"/jobs/{made.id}", "/stats", "/queues", "/workers", "/schedules"):
        answer = await stored.client.get(f"/api/v1{path}")
        assert (answer.status_code, answer.json()["type"]) == (503, "store_closed"), path
        assert answer.headers["retry-after"] == "2"
    sent = await stored.client.post("/api/v1/jobs", json={"name": "a"})
    assert (sent.status_code, sent.json()["type"]) == (503, "store_closed")
    (listed,) = (await stored.client.get("/api/v1/stores")).json()["stores"]
    assert "closed" in listed["error"]


async def test_a_bug_is_told_by_an_id_that_the_log_has_and_by_nothing_else(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(server.stores.first.store, "stats", broken)
    answer = await server.client.get("/api/v1/stats")
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (500, "internal_error")
    assert "secret detail" not in answer.text
    assert "Traceback" not in answer.text
    (record,) = [each for each in caplog.records if each.name == "mainstay.web"]
    assert problem["id"] in record.getMessage()
    assert record.exc_info is not None
